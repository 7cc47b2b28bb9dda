//! Ways to break the protocol, each of which the checker has to find.

/// One broken rule. The first eight break exclusion; the others show that each remaining property can fail as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// E2: the deadline is counted from the answer.
    AnchorAtAnswer,
    /// E2, E8: no margin, although a local clock may lag.
    NoMargin,
    /// E3: the release is sent when the job is told to stop, while it drains.
    ReleaseBeforeEnd,
    /// E7: the next try has the id of a term whose release was not answered.
    ReuseAfterUnansweredRelease,
    /// E7: the next try has the id of a grant whose job never started, once its release was answered.
    ReuseAfterUnusedGrant,
    /// E2, S3: a grant to the owner that has the lease only reports the row.
    RegrantOnlyReports,
    /// S4: a renewal may carry a shorter duration than the others of its term.
    ShorterRenewal,
    /// E3: nothing reads the clock when a paused process goes on.
    NoClockAtResume,
    /// E11: a task contends although another task of its executor has the name.
    NoTurn,
    /// E12: an executor that resigned tries again at once.
    NoStandBack,
    /// E10: a job's lease is released plainly in spite of a minimum hold.
    NoRest,
    /// S6: a release deletes the row, and tokens count from the start again.
    ReleaseDeletesRow,
    /// S3: a lease that ran out is not granted to another owner.
    NoTakeover,
}
