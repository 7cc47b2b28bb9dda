//! The store's contract: one row, one clock, four verbs (`store.rs` of the crate, S1 to S7).

use crate::{
    protocol::Protocol,
    sabotage::Sabotage,
    state::{Answer, Request, Row, Verb},
};

impl Protocol {
    /// What one request does to the row. Each is atomic.
    pub(crate) fn apply(&self, row: &mut Row, request: Request) -> Answer {
        let owns = row.owner.is_some_and(|owner| owner.owner == request.claim.owner);
        match request.verb {
            Verb::Acquire => self.acquire(row, request, owns),
            // S4: a lease that ran out but that nobody took is still its owner's to renew.
            Verb::Renew if owns => {
                row.left = request.duration;
                Answer::Renewed(row.token)
            }
            Verb::Renew => Answer::Lost,
            // S5: frees it when the caller owns it, expired or not.
            Verb::Release if owns => {
                (row.owner, row.left) = (None, 0);
                if self.suffers(Sabotage::ReleaseDeletesRow) {
                    row.token = 0;
                }
                Answer::Released
            }
            // S5: rests until `acquired_at + hold`.
            Verb::ReleaseAfter if owns => {
                (row.owner, row.left) = (None, self.hold.unwrap_or_default() - row.age);
                Answer::Released
            }
            Verb::Release | Verb::ReleaseAfter => Answer::Released,
        }
    }

    /// S3: granted when nobody has an unexpired lease, or the caller has it. S6: the token rises. S7: the whole duration.
    fn acquire(&self, row: &mut Row, request: Request, owns: bool) -> Answer {
        if owns && row.left > 0 && self.suffers(Sabotage::RegrantOnlyReports) {
            return Answer::Acquired(row.token);
        }
        let expired = row.left == 0 && (row.owner.is_none() || !self.suffers(Sabotage::NoTakeover));
        if !owns && !expired {
            return Answer::Held;
        }
        let token = row.token + 1;
        *row = Row { owner: Some(request.claim), token, left: request.duration, age: 0 };
        Answer::Acquired(token)
    }
}
