//! What the model remembers: the row, the tasks and their calls, the processes, late requests, and an observer.
//!
//! Nothing holds an absolute time. Every time is a number of ticks from now, which keeps the space finite.

/// A number of ticks.
pub(crate) type Ticks = u8;

/// A fencing token, or rather its rank among the tokens that are still remembered.
pub(crate) type Token = u8;

/// Tasks 0 and 1 belong to process 0, and task 2 to process 1.
pub(crate) const TASKS: usize = 3;
pub(crate) const PROCESSES: usize = 2;

/// The most late requests that the model can hold; [`Protocol::late`](crate::protocol::Protocol::late) says how many it does.
pub(crate) const LATE: usize = 2;

pub(crate) fn process_of(task: usize) -> usize {
    usize::from(task == 2)
}

/// Everything, at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) row: Row,
    pub(crate) tasks: [Task; TASKS],
    pub(crate) processes: [Process; PROCESSES],
    /// Requests that nobody waits for. Each may reach the store at any later time, more than once, or never.
    pub(crate) late: [Option<Request>; LATE],
    pub(crate) observer: Observer,
}

/// An owner id (E7). The store sees `owner` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Claim {
    pub(crate) owner: u8,
    /// Counts how often an executor of E7 would have gone on to a new id. It never differs from `owner` unless ids are reused.
    pub(crate) life: u8,
}

/// The row of the one name, on the store's clock (section 4 of the design).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    /// None while it is free or rests.
    pub(crate) owner: Option<Claim>,
    pub(crate) token: Token,
    /// Until `expires_at`.
    pub(crate) left: Ticks,
    /// Since `acquired_at`, up to the minimum hold.
    pub(crate) age: Ticks,
}

/// One call of `run`: it contends, has a job run, and gives the lease back (`contend.rs`, `stop.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Task {
    pub(crate) phase: Phase,
    /// The id that it contends with or has a term under.
    pub(crate) claim: Option<Claim>,
    /// The token of its term, which every renewal must answer (E7).
    pub(crate) token: Option<Token>,
    /// Until the deadline, on the process's clock (E2). `term.rs` has it as an instant.
    pub(crate) left: Ticks,
    /// The call that it waits for.
    pub(crate) call: Option<Call>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Neither contends nor holds: not started, done, or in line for the executor's one turn (E11).
    Idle,
    /// Has the turn and an id, and tries; between tries it has no call (E5).
    Contending,
    /// Its grant's stop point had passed on arrival, so that it is renewed once before the job's first poll (E2, `confirm`).
    Confirming,
    /// Holds a grant whose job has not been polled yet.
    Granted,
    /// Its job runs. Told to resign, it drains: the deadline does not move any more (E12). A stubborn job cannot be dropped (E3).
    Running { resigning: bool, stubborn: bool },
    /// Its job was dropped and has not ended: `join` waits for it, the lease lapses (E3).
    Overrun,
    /// Its job has ended; renewals go on until `release_after` is answered (E10).
    Resting,
    /// Waits for the answer to a release, for this reason.
    Releasing(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    /// A grant's job never started (E7, `give_back`).
    UnusedGrant,
    /// The job has ended (E3).
    JobEnded,
    /// The job has ended because the executor was told to resign (E12).
    Resigned,
}

/// A call that a task waits for. Nobody waits for two at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) duration: Ticks,
    /// Until the deadline that this call's own `Ok` would set: counted from the instant before it was sent (E2). For a release, what
    /// is left of one duration since it was sent (E12).
    pub(crate) promise: Ticks,
    pub(crate) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// On its way to the store.
    Sent,
    /// Done, and the answer is on its way back.
    Answered(Answer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Verb {
    Acquire,
    Renew,
    Release,
    ReleaseAfter,
}

/// What the store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) claim: Claim,
    pub(crate) duration: Ticks,
}

/// What the store answers; an error that says nothing is an answer that never comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Acquired(Token),
    Held,
    Renewed(Token),
    Lost,
    Released,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    /// Frozen: it takes no step, while both clocks go on.
    pub(crate) paused: bool,
    /// Ticks since its clock last lagged, up to one less than the duration.
    pub(crate) steady: Ticks,
    /// How long none of its tasks may try yet (E12).
    pub(crate) back: Ticks,
}

/// Sees everything, influences nothing: what the properties need beside the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Observer {
    /// The token under which a job was started last.
    pub(crate) started: Token,
    /// What is left of the minimum hold of the term under which a job was started last; none once that lease has lapsed (E10).
    pub(crate) hold: Ticks,
    /// After a resignation: the process that stands back, and how long the lease has to be there for others (E12).
    pub(crate) offered: Option<(usize, Ticks)>,
    /// What the last step broke.
    pub(crate) breach: Option<Breach>,
}

/// A rule that a step can break without leaving a trace in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Breach {
    /// A late request of an earlier term changed the row of a later one.
    LateTouch,
    /// A job was started under a token that was not greater than the one before.
    TokenFell,
    /// A job was started within the minimum hold of the one before.
    HoldCut,
    /// A process that had resigned took the lease before others had their time.
    NotStoodBack,
}

impl Task {
    pub(crate) const IDLE: Self = Self { phase: Phase::Idle, claim: None, token: None, left: 0, call: None };

    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Whether a job has been started and has not ended.
    pub(crate) fn has_job(&self) -> bool {
        matches!(self.phase, Phase::Running { .. } | Phase::Overrun)
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.call.is_some_and(|call| call.stage == Stage::Sent)
    }

    /// The call that it waits for, as the store sees it.
    pub(crate) fn request(&self) -> Option<Request> {
        let call = self.call?;
        Some(Request { verb: call.verb, claim: self.claim?, duration: call.duration })
    }
}

impl State {
    /// The row is free, everybody idle.
    pub(crate) fn start(steady: Ticks) -> Self {
        Self {
            row: Row { owner: None, token: 0, left: 0, age: 0 },
            tasks: [Task::IDLE; TASKS],
            processes: [Process { paused: false, steady, back: 0 }; PROCESSES],
            late: [None; LATE],
            observer: Observer { started: 0, hold: 0, offered: None, breach: None },
        }
    }

    pub(crate) fn tasks_of(&self, process: usize) -> impl Iterator<Item = &Task> {
        self.tasks.iter().enumerate().filter(move |(task, _)| process_of(*task) == process).map(|(_, task)| task)
    }

    pub(crate) fn is_awake(&self, task: usize) -> bool {
        !self.processes[process_of(task)].paused
    }

    /// Whether the job of `task` can take a step that is guarded by the lease: an overrunning job is past all guards.
    pub(crate) fn is_running(&self, task: usize) -> bool {
        self.is_awake(task) && matches!(self.tasks[task].phase, Phase::Running { .. })
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = Claim> {
        let tasks = self.tasks.iter().filter_map(|task| task.claim);
        tasks.chain(self.row.owner).chain(self.late.iter().flatten().map(|request| request.claim))
    }

    /// An id that was never used before (E7, `owner.rs`).
    pub(crate) fn mint(&self) -> Claim {
        let next = |part: fn(Claim) -> u8| self.claims().map(part).max().map_or(0, |last| last + 1);
        Claim { owner: next(|claim| claim.owner), life: next(|claim| claim.life) }
    }
}
