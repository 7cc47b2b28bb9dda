//! The ways in which a store can be broken, each against one rule.

/// Declares the faults, so that the list of all of them cannot lack one.
macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident $rule:literal,)+) => {
        /// What is wrong with a store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault {
            $($(#[$doc])* $fault,)+
        }

        impl Fault {
            pub(crate) const ALL: &[Self] = &[$(Self::$fault),+];

            /// The rule that it breaks.
            pub(crate) fn rule(self) -> &'static str {
                match self {
                    $(Self::$fault => $rule,)+
                }
            }
        }
    };
}

faults! {
    /// Whoever asks is granted the lease.
    GrantsAlways "S1",
    /// Looks whether the lease is free, and takes it a moment later.
    ChecksThenWrites "S1",
    /// Each store has rows of its own, as with an in-memory database for each connection.
    KeepsRowsForItself "S1",
    /// Writes what the client's clock says.
    UsesTheClientsClock "S2",
    /// Each replica has another idea of now.
    UsesClocksThatDiffer "S2",
    /// Nobody is ever granted anything.
    GrantsNever "S3",
    /// An owner that has the lease is refused it.
    RefusesTheHolder "S3",
    /// A lease that has an owner is held, for ever.
    IgnoresTheExpiry "S3",
    /// Tells the whole duration in place of the time left.
    TellsAConstantTimeLeft "S3",
    /// Each refusal moves the expiry on.
    ExtendsOnRefusal "S3",
    /// Each refusal leaves a mark in the row.
    WritesOnRefusal "S3",
    /// Waits for the transaction that has the row.
    QueuesForLocks "S3",
    /// Takes a locked row for a free one.
    TakesLockedRows "S3",
    /// A watcher is subscribed when it is first polled.
    SubscribesWhenPolled "S3",
    /// A release wakes one of the watchers.
    WakesOneWatcher "S3",
    /// Answers a renewal without one.
    RenewsNothing "S4",
    /// A renewal is a new acquisition.
    RaisesTheTokenOnRenewal "S4",
    /// Anybody renews.
    RenewsForStrangers "S4",
    /// Every loss has the same reason.
    LosesWithoutReason "S4",
    /// A shorter renewal leaves the longer expiry.
    NeverShortens "S4",
    /// A lease that ran out cannot be renewed.
    RefusesToRenewTheExpired "S4",
    /// A renewal takes a row that has no owner.
    RenewsTheOwnerless "S4",
    /// A renewal makes the row that is missing.
    RenewsTheMissing "S4",
    /// A refused renewal leaves a mark in the row.
    WritesOnLoss "S4",
    /// Does not tell that a hand-over was asked for.
    ForgetsTheHandOver "S4",
    /// A grant leaves the request to hand over in the row.
    InheritsTheHandOver "S4",
    /// The answers to a batch come in the order of the names.
    SortsABatch "S4",
    /// A term that comes twice in a batch is answered once.
    MergesABatch "S4",
    /// A batch of nothing is an error.
    RefusesAnEmptyBatch "S4",
    /// A batch renews no more than a hundred.
    CutsABatch "S4",
    /// A batch is answered without a renewal.
    RenewsNothingInABatch "S4",
    /// A batch waits for a locked row.
    QueuesInABatch "S4",
    /// A release takes the owner out and leaves the expiry.
    ReleasesToARest "S5",
    /// Anybody releases.
    ReleasesForStrangers "S5",
    /// A lease that ran out cannot be released.
    RefusesToReleaseTheExpired "S5",
    /// To release nothing is an error.
    FailsOnAMissingRow "S5",
    /// Every release says that it freed the lease.
    ReleasesAlways "S5",
    /// A release deletes the row.
    DeletesOnRelease "S5",
    /// A refused release leaves a mark in the row.
    WritesOnRefusedRelease "S5",
    /// A hold counts from the release.
    HoldsFromNow "S5",
    /// A hold counts from the first grant.
    RemembersTheFirstGrant "S5",
    /// A lease that rests keeps its owner in the row.
    RestsWithItsOwner "S5",
    /// A lease that rests is free.
    RestsNever "S5",
    /// The same token for ever.
    RepeatsTheToken "S6",
    /// The clock in milliseconds, and nothing else.
    ReadsTheTokenFromTheClock "S6",
    /// The clock, whatever the old token was.
    ForgetsTheOldToken "S6",
    /// The old token plus one, and nothing else.
    CountsTheToken "S6",
    /// A grant is shorter than was asked for.
    GrantsTooShort "S7",
    /// A grant is longer than was asked for.
    GrantsTooLong "S7",
    /// A grant to the holder reports the row and leaves it.
    ReportsOnRegrant "S7",
    /// A takeover lasts from where the old lease ended.
    TakesOverFromTheOldExpiry "S7",
    /// Reads the clock, and then waits for locks.
    ReadsTheClockBeforeTheLock "S7",
    /// Answers a grant that it did not write.
    GrantsWithoutWriting "S8",
    /// A refusal is an error.
    FailsOnContention "S8",
    /// Says that nothing happened when the answer was lost.
    LiesAboutErrors "S8",
    /// Names that differ in case or marks are one.
    FoldsNames "S9",
    /// Owners that differ in case or marks are one.
    FoldsOwners "S9",
    /// Owners come back in lower case.
    TellsFoldedOwners "S9",
    /// One lease for all names.
    IgnoresTheName "S9",
    /// Durations are whole seconds.
    RoundsToSeconds "S10",
    /// Milliseconds are a 32-bit integer.
    Overflows "S10",
    /// To a forced release a lease of a locked row is like any.
    ForcesLockedRows "S3",
    /// A forced release answers, and leaves the owner.
    ForcesNobodyOut "S4",
    /// A forced release frees at once, whatever was asked.
    EndsARest "S1",
    /// A forced release leaves the expiry, whatever was asked.
    EndsNoRest "S5",
    /// A forced release leaves the token.
    ForcesWithTheOldToken "S6",
    /// A table that is not there is one without rows.
    TakesAMissingTableForEmpty "S14",
    /// Writes in two steps, so that a dropped call leaves the row between.
    WritesInTwoSteps "S11",
    /// A dropped call never gives its connection back.
    LosesTheDroppedConnection "S11",
    /// Waits for the database for ever.
    WaitsForEver "S12",
    /// After an error, nothing but errors.
    StaysBroken "S12",
    /// Has one connection and gives up soon.
    HasNoRoom "S12",
    /// A refused call keeps its connection.
    KeepsTheConnection "S13",
    /// A watcher keeps a connection.
    KeepsAConnectionForAWatcher "S13",
    /// The answer comes before the commit.
    CommitsLate "S13",
    /// Answers from what it saw last.
    AnswersFromMemory "S14",
    /// Its statements are bound to the table as it was.
    ClingsToTheTable "S14",
}
