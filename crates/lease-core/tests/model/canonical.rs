//! One form for all states that differ in names alone: what can do nothing is forgotten, ids and tokens become ranks.

use crate::state::{Answer, Claim, PROCESSES, Request, Stage, State, Task, Ticks, Token, Verb};

impl State {
    /// Brings the state into its form. `steady` is the value of a clock that may lag at once.
    pub(crate) fn canonicalise(&mut self, steady: Ticks, grace: Ticks) {
        self.forget_the_dead();
        for call in self.tasks.iter_mut().filter_map(|task| task.call.as_mut()) {
            // An answer that comes after the stop point is of no use, however late it is.
            if matches!(call.verb, Verb::Acquire | Verb::Renew) && call.promise <= grace {
                call.promise = 0;
            }
        }
        if self.tasks[0].is_idle() {
            // Two tasks of one executor differ in nothing; the one that is idle stands last.
            self.tasks.swap(0, 1);
        }
        for process in 0..PROCESSES {
            // A clock that nobody reads may have lagged at any time.
            let reads = |task: &Task| task.left > 0 || task.call.is_some();
            if self.processes[process].back == 0 && !self.tasks_of(process).any(reads) {
                self.processes[process].steady = steady;
            }
        }
        self.rank_claims();
        self.rank_tokens();
    }

    /// Forgets late requests that can never again change the row, and the owner of an expired row for whom nobody can speak any
    /// more.
    fn forget_the_dead(&mut self) {
        let lives = |owner: u8, state: &Self| {
            let named = state.row.owner.iter().any(|claim| claim.owner == owner);
            let tried = state.tasks.iter().any(|task| task.claim.is_some_and(|claim| claim.owner == owner));
            let may_win = |late: &Request| late.verb == Verb::Acquire && late.claim.owner == owner;
            named || tried || state.late.iter().flatten().any(may_win)
        };
        for slot in 0..self.late.len() {
            if self.late[slot].is_some_and(|request| !lives(request.claim.owner, self)) {
                self.late[slot] = None;
            }
        }
        if let (Some(owner), 0) = (self.row.owner, self.row.left) {
            self.row.owner = None;
            let spoken_for = self.claims().any(|claim| claim.owner == owner.owner);
            self.row.owner = spoken_for.then_some(owner);
        }
    }

    /// Renames owner ids and lives to the order in which they first appear.
    fn rank_claims(&mut self) {
        let (mut owners, mut lives) = (Ranks::default(), Ranks::default());
        let mut rename = |claim: &mut Claim| {
            claim.owner = owners.rank(claim.owner);
            claim.life = lives.rank(claim.life);
        };
        self.tasks.iter_mut().filter_map(|task| task.claim.as_mut()).for_each(&mut rename);
        self.row.owner.iter_mut().for_each(&mut rename);
        // Late requests are a set. They are put in order by what is known of them; those alike in that are alike in all.
        let known = |claim: Claim| (owners.known(claim.owner), lives.known(claim.life));
        self.late.sort_unstable_by_key(|late| late.map(|late| (late.verb, late.duration, known(late.claim))));
        for late in self.late.iter_mut().flatten() {
            late.claim.owner = owners.rank(late.claim.owner);
            late.claim.life = lives.rank(late.claim.life);
        }
    }

    /// Renames tokens to their ranks. They are small, for they were ranks one step before.
    fn rank_tokens(&mut self) {
        let mut seen = 0_u32;
        self.each_token(|token| seen |= 1 << *token);
        self.each_token(|token| {
            let below = seen & ((1 << *token) - 1);
            *token = Token::try_from(below.count_ones()).expect("a word has few bits");
        });
    }

    fn each_token(&mut self, mut visit: impl FnMut(&mut Token)) {
        visit(&mut self.row.token);
        visit(&mut self.observer.started);
        for task in &mut self.tasks {
            task.token.iter_mut().for_each(&mut visit);
            if let Some(Stage::Answered(Answer::Acquired(token) | Answer::Renewed(token))) =
                task.call.as_mut().map(|call| &mut call.stage)
            {
                visit(token);
            }
        }
    }
}

/// Ranks by first appearance.
#[derive(Default)]
struct Ranks {
    seen: [u8; 8],
    count: u8,
}

impl Ranks {
    fn known(&self, id: u8) -> u8 {
        let seen = &self.seen[..usize::from(self.count)];
        seen.iter().zip(0..).find_map(|(other, rank)| (*other == id).then_some(rank)).unwrap_or(u8::MAX)
    }

    fn rank(&mut self, id: u8) -> u8 {
        match self.known(id) {
            u8::MAX => {
                self.seen[usize::from(self.count)] = id;
                self.count += 1;
                self.count - 1
            }
            rank => rank,
        }
    }
}
