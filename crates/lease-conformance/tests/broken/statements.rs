//! What each verb does in the database, right in everything but the store's fault.

use std::{sync::Arc, time::Duration};

use lease_conformance::Row;
use lease_core::{
    Acquisition, ErrorKind, FencingToken, ForceRelease, ForcedRelease, Holder, LeaseDuration, LeaseName, LossReason,
    Operation, OwnerId, Renewal, StoreError,
};
use tokio::{task::yield_now, time::sleep};

use crate::{fault::Fault, store::Store};

const HOUR: i64 = 3_600_000_000;

impl Store {
    pub(crate) async fn acquire(&self, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Acquisition {
        let key = self.key(name);
        let early = self.now();
        let queues = self.has(Fault::QueuesForLocks) || self.has(Fault::ReadsTheClockBeforeTheLock);
        let (exists, locked) = (self.row(&key).is_some(), self.database.state().locked.contains(&key));
        if queues || !exists {
            // Where there is no row yet, an insert waits for the one that is pending.
            self.database.until_not(|state| state.locked.contains(&key)).await;
        } else if locked && !self.has(Fault::TakesLockedRows) {
            return Acquisition::Held(Holder::new(None, Duration::ZERO));
        }
        let now = if self.has(Fault::ReadsTheClockBeforeTheLock) { early } else { self.now() };
        let old = self.row(&key);
        let may_take = locked && self.has(Fault::TakesLockedRows);
        if let Some(row) = old.as_ref().filter(|row| !may_take && self.refuses(row, owner, now)) {
            return Acquisition::Held(self.refusal(&key, row, now, duration));
        }
        if self.has(Fault::ChecksThenWrites) {
            yield_now().await;
        }
        let row = self.granted(old.as_ref(), owner, duration, now);
        let token = FencingToken::new(row.token);
        if !self.has(Fault::GrantsWithoutWriting) {
            self.write(&key, row, |half| half.expires_at = i64::MAX).await;
        }
        Acquisition::Acquired(token)
    }

    fn refuses(&self, row: &Row, owner: &OwnerId, now: i64) -> bool {
        let is_held = match self.fault {
            Some(Fault::IgnoresTheExpiry) => row.owner.is_some() || row.expires_at > now,
            Some(Fault::RestsNever) => row.owner.is_some() && row.expires_at > now,
            _ => row.expires_at > now,
        };
        let is_own = self.owns(row, owner) && !self.has(Fault::RefusesTheHolder);
        is_held && !is_own && !self.has(Fault::GrantsAlways)
    }

    fn refusal(&self, key: &str, row: &Row, now: i64, duration: LeaseDuration) -> Holder {
        match self.fault {
            Some(Fault::ExtendsOnRefusal) => self.mark(key, |row| row.expires_at += 5_000),
            Some(Fault::WritesOnRefusal) => self.mark(key, |row| row.hand_over_at = Some(now)),
            _ => {}
        }
        let left = Duration::from_micros((row.expires_at - now).max(0).unsigned_abs());
        let owner = row.owner.clone().map(|owner| {
            let folded = owner.as_str().to_lowercase();
            if self.has(Fault::TellsFoldedOwners) { OwnerId::new(folded).expect("a valid owner") } else { owner }
        });
        let remaining = if self.has(Fault::TellsAConstantTimeLeft) { duration.as_duration() } else { left };
        Holder::new(owner, remaining)
    }

    fn granted(&self, old: Option<&Row>, owner: &OwnerId, duration: LeaseDuration, now: i64) -> Row {
        let micros = self.micros(duration);
        let expires_at = match (self.fault, old) {
            (Some(Fault::GrantsTooShort), _) => now + micros - 5_000,
            (Some(Fault::GrantsTooLong), _) => now + micros + 5_000,
            (Some(Fault::ReportsOnRegrant), Some(old)) if self.owns(old, owner) => old.expires_at,
            (Some(Fault::TakesOverFromTheOldExpiry), Some(old)) if old.owner.is_some() && old.expires_at <= now => {
                old.expires_at + micros
            }
            _ => now + micros,
        };
        let next = old.map_or(0, |old| old.token + 1);
        let token = match self.fault {
            Some(Fault::RepeatsTheToken) => old.map_or(now, |old| old.token),
            Some(Fault::ReadsTheTokenFromTheClock) => now / 1000 * 1000,
            Some(Fault::ForgetsTheOldToken) => now,
            Some(Fault::CountsTheToken) => next.max(1),
            _ => next.max(now),
        };
        let inherited = old.and_then(|old| old.hand_over_at).filter(|_| self.has(Fault::InheritsTheHandOver));
        let first = old.map(|old| old.acquired_at).filter(|_| self.has(Fault::RemembersTheFirstGrant));
        let acquired_at = first.unwrap_or(now);
        Row { owner: Some(owner.clone()), token, acquired_at, expires_at, hand_over_at: inherited }
    }

    pub(crate) async fn extend(&self, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Renewal {
        let key = self.key(name);
        let early = self.now();
        self.database.until_not(|state| state.locked.contains(&key)).await;
        let now = if self.has(Fault::ReadsTheClockBeforeTheLock) { early } else { self.now() };
        let Some(mut row) = self.row(&key) else {
            if self.has(Fault::RenewsTheMissing) {
                self.write(&key, self.granted(None, owner, duration, now), |_| {}).await;
            }
            return Renewal::Lost(LossReason::Deleted);
        };
        let is_expired = row.expires_at <= now && self.has(Fault::RefusesToRenewTheExpired);
        let may_renew = match &row.owner {
            Some(_) => (self.owns(&row, owner) && !is_expired) || self.has(Fault::RenewsForStrangers),
            None => self.has(Fault::RenewsTheOwnerless),
        };
        if !may_renew {
            if self.has(Fault::WritesOnLoss) {
                self.mark(&key, |row| row.hand_over_at = Some(now));
            }
            let reason = row.owner.map_or(LossReason::ForcedOut, LossReason::TakenOver);
            let reason = if self.has(Fault::LosesWithoutReason) { LossReason::ForcedOut } else { reason };
            return Renewal::Lost(reason);
        }
        row.owner = Some(owner.clone());
        row.token += i64::from(self.has(Fault::RaisesTheTokenOnRenewal));
        row.expires_at = match self.fault {
            Some(Fault::RenewsNothing) => row.expires_at,
            Some(Fault::NeverShortens) => row.expires_at.max(now + self.micros(duration)),
            _ => now + self.micros(duration),
        };
        let hand_over = row.hand_over_at.is_some() && !self.has(Fault::ForgetsTheHandOver);
        let renewal = Renewal::renewed(FencingToken::new(row.token), hand_over);
        self.write(&key, row, |half| half.expires_at = 0).await;
        renewal
    }

    /// Frees the lease, or lets it rest for `hold` since its grant.
    pub(crate) async fn give_up(
        &self,
        name: &LeaseName,
        owner: &OwnerId,
        hold: Option<LeaseDuration>,
        operation: Operation,
    ) -> Result<bool, StoreError> {
        let key = self.key(name);
        self.database.until_not(|state| state.locked.contains(&key)).await;
        let now = self.now();
        let Some(mut row) = self.row(&key) else {
            let failure = StoreError::new(operation, ErrorKind::Unexpected);
            return if self.has(Fault::FailsOnAMissingRow) {
                Err(failure)
            } else {
                Ok(self.has(Fault::ReleasesAlways))
            };
        };
        let is_expired = row.expires_at <= now && self.has(Fault::RefusesToReleaseTheExpired);
        if (!self.owns(&row, owner) || is_expired) && !self.has(Fault::ReleasesForStrangers) {
            if self.has(Fault::WritesOnRefusedRelease) {
                self.mark(&key, |row| row.hand_over_at = Some(now));
            }
            return Ok(self.has(Fault::ReleasesAlways));
        }
        row.expires_at = match (hold, self.fault) {
            (None, Some(Fault::ReleasesToARest)) => row.expires_at,
            (None, _) => 0,
            (Some(hold), Some(Fault::HoldsFromNow)) => now + self.micros(hold),
            (Some(hold), _) => row.acquired_at + self.micros(hold),
        };
        if hold.is_none() || !self.has(Fault::RestsWithItsOwner) {
            row.owner = None;
        }
        row.hand_over_at = None;
        let before = self.row(&key).map_or(0, |row| row.expires_at);
        self.write(&key, row, |half| half.expires_at = if hold.is_some() { 0 } else { before }).await;
        if hold.is_none() && self.has(Fault::DeletesOnRelease) {
            self.database.state().rows.remove(&key);
        }
        if self.has(Fault::WakesOneWatcher) {
            self.database.freed.notify_one();
        } else {
            self.database.freed.notify_waiters();
        }
        Ok(true)
    }

    /// Ends what there is to end, as an operator.
    pub(crate) fn force_out(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        let (key, now) = (self.key(name), self.now());
        if self.database.state().locked.contains(&key) && !self.has(Fault::ForcesLockedRows) {
            return Err(StoreError::new(Operation::ForceRelease, ErrorKind::Contended));
        }
        let is_now = mode == ForceRelease::Now;
        let mut state = self.database.state();
        let is_resting = |row: &Row| row.expires_at > now && (is_now || self.has(Fault::EndsARest));
        let Some(row) = state.rows.get_mut(&key).filter(|row| row.owner.is_some() || is_resting(row)) else {
            return Ok(self.has(Fault::ForcesNobodyOut).then(|| ForcedRelease::new(None, Duration::ZERO)));
        };
        if (is_now && !self.has(Fault::EndsNoRest)) || self.has(Fault::EndsARest) {
            row.expires_at = 0;
        }
        if !self.has(Fault::ForcesWithTheOldToken) {
            row.token = now.max(row.token + 1);
        }
        row.hand_over_at = None;
        let owner = if self.has(Fault::ForcesNobodyOut) { row.owner.clone() } else { row.owner.take() };
        Ok(Some(ForcedRelease::new(owner, Duration::from_micros((row.expires_at - now).max(0).unsigned_abs()))))
    }

    pub(crate) fn now(&self) -> i64 {
        let now = self.database.now();
        match self.fault {
            Some(Fault::UsesTheClientsClock) => now + 24 * HOUR,
            Some(Fault::UsesClocksThatDiffer) => now + self.replica * HOUR,
            _ => now,
        }
    }

    fn micros(&self, duration: LeaseDuration) -> i64 {
        let millis = duration.as_millis();
        match self.fault {
            Some(Fault::RoundsToSeconds) => millis.unsigned_abs().div_ceil(1000).cast_signed() * 1_000_000,
            Some(Fault::Overflows) => ((millis << 32) >> 32) * 1000,
            _ => millis * 1000,
        }
    }

    fn key(&self, name: &LeaseName) -> String {
        match self.fault {
            Some(Fault::FoldsNames) => name.as_str().to_lowercase(),
            Some(Fault::IgnoresTheName) => "job".to_owned(),
            _ => name.to_string(),
        }
    }

    fn owns(&self, row: &Row, owner: &OwnerId) -> bool {
        let fold = |owner: &OwnerId| owner.as_str().to_lowercase();
        match &row.owner {
            Some(current) if self.has(Fault::FoldsOwners) => fold(current) == fold(owner),
            current => current.as_ref() == Some(owner),
        }
    }

    pub(crate) fn row(&self, key: &str) -> Option<Row> {
        self.database.state().rows.get(key).cloned()
    }

    fn mark(&self, key: &str, change: impl FnOnce(&mut Row)) {
        if let Some(row) = self.database.state().rows.get_mut(key) {
            change(row);
        }
    }

    /// Writes the row; `half` is how it looks between the two steps of the fault that takes two.
    async fn write(&self, key: &str, row: Row, half: impl FnOnce(&mut Row)) {
        if self.has(Fault::WritesInTwoSteps) {
            let mut between = row.clone();
            half(&mut between);
            self.database.state().rows.insert(key.to_owned(), between);
            yield_now().await;
        }
        if self.has(Fault::CommitsLate) {
            let (database, key) = (Arc::clone(&self.database), key.to_owned());
            tokio::spawn(async move {
                sleep(Duration::from_millis(1)).await;
                database.state().rows.insert(key, row);
            });
            return;
        }
        self.database.state().rows.insert(key.to_owned(), row);
    }
}
