//! What must be true of a history: S1, S6, and that a renewal keeps its token.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::{Claim, Outcome, Record, Summary, Verb, Violation};

/// Checks a history, in whatever order its records are.
///
/// `tolerance` is how much faster the database's clock may run than the host's within the longest lease of the history.
///
/// # Errors
///
/// The first [`Violation`] that was found.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_conformance::history::{check, Outcome, Record, Verb};
///
/// let acquire = |owner: &str, token, called| Record {
///     process: 0, task: 0, owner: owner.to_owned(), name: "job".to_owned(), verb: Verb::Acquire,
///     called, returned: called + 1_000, duration_millis: 10, outcome: Outcome::Done, token: Some(token),
/// };
/// let tolerance = Duration::from_micros(10);
/// assert!(check(&[acquire("a", 1, 0), acquire("b", 2, 20_000_000)], tolerance).is_ok());
/// let violation = check(&[acquire("a", 1, 0), acquire("b", 2, 5_000_000)], tolerance).unwrap_err();
/// assert!(violation.to_string().starts_with("S1: two owners"));
/// ```
pub fn check(records: &[Record], tolerance: Duration) -> Result<Summary, Violation> {
    let tolerance = u64::try_from(tolerance.as_nanos()).unwrap_or(u64::MAX);
    let mut names: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records {
        names.entry(&record.name).or_default().push(record);
    }
    let mut summary = count(records);
    for (name, mut records) in names {
        records.sort_by_key(|record| record.called);
        let claims = claims(&records, tolerance)?;
        check_exclusion(name, &records, &claims)?;
        check_tokens(&records, tolerance)?;
        summary.takeovers += takeovers(&records);
    }
    Ok(summary)
}

fn count(records: &[Record]) -> Summary {
    let mut summary = Summary::default();
    for record in records {
        summary.operations += 1;
        let counter = match (record.outcome, record.verb) {
            (Outcome::Done, Verb::Acquire) => &mut summary.grants,
            (Outcome::Refused, Verb::Acquire) => &mut summary.refusals,
            (Outcome::Done, Verb::Renew) => &mut summary.renewals,
            (Outcome::Refused, Verb::Renew) => &mut summary.losses,
            (Outcome::Done, Verb::Release) => &mut summary.releases,
            (Outcome::Refused, Verb::Release) => continue,
            (Outcome::Dropped, _) => &mut summary.dropped,
            (Outcome::Failed, _) => &mut summary.failed,
        };
        *counter += 1;
    }
    summary
}

/// What one owner is known to have at a point of its history.
#[derive(Default)]
struct Known {
    claim: Option<Claim>,
    token: Option<i64>,
}

/// The intervals during which somebody certainly had the lease, by their beginning.
fn claims(records: &[&Record], tolerance: u64) -> Result<Vec<Claim>, Violation> {
    let mut claims = Vec::new();
    let mut owners: HashMap<&str, Known> = HashMap::new();
    for record in records {
        let known = owners.entry(&record.owner).or_default();
        // Whatever becomes of this call, it may leave the lease to last from here, or free it.
        let lasts = (record.duration_millis * 1_000_000).saturating_sub(tolerance);
        let until = record.called.saturating_add(lasts);
        if let Some(claim) = &mut known.claim {
            let refused = record.outcome == Outcome::Refused;
            let ends = if record.verb == Verb::Release || refused { record.called } else { until };
            claim.until = claim.until.min(ends);
        }
        match (record.verb, record.outcome) {
            (Verb::Acquire, Outcome::Done) => known.token = record.token,
            (Verb::Renew, Outcome::Done) => match known.token {
                Some(granted) if record.token != Some(granted) => {
                    return Err(Violation::TokenChanged { granted, renewal: Box::new((*record).clone()) });
                }
                _ => {}
            },
            // After an acquisition without an answer the owner's token is not known.
            _ => known.token = None,
        }
        if record.verb != Verb::Release && record.outcome == Outcome::Done && record.returned < until {
            // What the owner had until the answer came goes on without a gap; what had run out before is over for good.
            let from = match known.claim.take() {
                Some(unbroken) if unbroken.until >= record.returned => unbroken.from,
                over => {
                    claims.extend(over);
                    record.returned
                }
            };
            known.claim = Some(Claim { owner: record.owner.clone(), from, until });
        }
    }
    claims.extend(owners.into_values().filter_map(|known| known.claim));
    claims.retain(|claim| claim.from < claim.until);
    claims.sort_by_key(|claim| claim.from);
    Ok(claims)
}

/// S1, by a sweep over the claims, and over the grants that came too late to claim anything.
fn check_exclusion(name: &str, records: &[&Record], claims: &[Claim]) -> Result<(), Violation> {
    let mut latest: Vec<&Claim> = Vec::with_capacity(claims.len());
    for claim in claims {
        match latest.last() {
            Some(last) if claim.from < last.until && claim.owner != last.owner => {
                let (first, second) = ((*last).clone(), claim.clone());
                return Err(Violation::TwoOwners { name: name.to_owned(), first, second });
            }
            Some(last) if claim.until <= last.until => {}
            _ => latest.push(claim),
        }
    }
    for grant in records.iter().filter(|record| record.verb == Verb::Acquire && record.outcome == Outcome::Done) {
        let before = latest.partition_point(|claim| claim.from <= grant.called);
        if let Some(holder) = before.checked_sub(1).map(|last| latest[last])
            && holder.owner != grant.owner
            && holder.until > grant.returned
        {
            let (holder, grant) = (holder.clone(), Box::new((*grant).clone()));
            return Err(Violation::GrantedWhileHeld { name: name.to_owned(), holder, grant });
        }
    }
    Ok(())
}

/// S6: an acquisition that was called after another had returned has a greater token, and no two have the same.
fn check_tokens(records: &[&Record], tolerance: u64) -> Result<(), Violation> {
    let grants = grants(records);
    let mut by_return = grants.clone();
    by_return.sort_by_key(|grant| grant.returned);
    let mut returned = by_return.into_iter().peekable();
    let mut greatest: Option<&Record> = None;
    let mut tokens: HashMap<Option<i64>, &Record> = HashMap::new();
    for later in grants {
        while let Some(earlier) = returned.next_if(|earlier| earlier.returned.saturating_add(tolerance) < later.called)
        {
            if greatest.is_none_or(|greatest| greatest.token < earlier.token) {
                greatest = Some(earlier);
            }
        }
        let same = tokens.insert(later.token, later);
        if let Some(earlier) = same.or(greatest.filter(|earlier| earlier.token >= later.token)) {
            let (earlier, later) = (Box::new(earlier.clone()), Box::new(later.clone()));
            return Err(Violation::TokenDidNotRise { earlier, later });
        }
    }
    Ok(())
}

/// Grants whose former owner had not released the lease.
fn takeovers(records: &[&Record]) -> u64 {
    let mut grants = grants(records);
    grants.sort_by_key(|grant| grant.token);
    let pairs = grants.windows(2).filter(|pair| {
        let (former, next) = (pair[0], pair[1]);
        let gave_up = |record: &&&Record| {
            record.owner == former.owner
                && record.verb == Verb::Release
                && record.outcome != Outcome::Refused
                && (former.called..next.returned).contains(&record.called)
        };
        // The records are sorted by call, so that only those between the two grants are looked at.
        let from = records.partition_point(|record| record.called < former.called);
        let to = records.partition_point(|record| record.called < next.returned);
        former.owner != next.owner && !records[from.min(to)..to].iter().any(|record| gave_up(&record))
    });
    u64::try_from(pairs.count()).unwrap_or(u64::MAX)
}

fn grants<'a>(records: &[&'a Record]) -> Vec<&'a Record> {
    let granted = |record: &&&Record| record.verb == Verb::Acquire && record.outcome == Outcome::Done;
    records.iter().filter(granted).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    /// A call of `owner` that takes a millisecond, for a lease of ten.
    fn call(owner: &str, verb: Verb, at: u64, outcome: Outcome, token: Option<i64>) -> Record {
        let duration_millis = if verb == Verb::Release { 0 } else { 10 };
        let (called, returned) = (at * MILLI, (at + 1) * MILLI);
        let (owner, name) = (owner.to_owned(), "job".to_owned());
        Record { process: 0, task: 0, owner, name, verb, called, returned, duration_millis, outcome, token }
    }

    fn acquire(owner: &str, at: u64, token: i64) -> Record {
        call(owner, Verb::Acquire, at, Outcome::Done, Some(token))
    }

    fn renew(owner: &str, at: u64, token: i64) -> Record {
        call(owner, Verb::Renew, at, Outcome::Done, Some(token))
    }

    fn verdict(records: &[Record]) -> Result<Summary, Violation> {
        let mut backwards = records.to_vec();
        backwards.reverse();
        let tolerance = Duration::from_micros(100);
        let verdict = check(records, tolerance);
        if records.windows(2).all(|pair| pair[0].called != pair[1].called) {
            assert_eq!(verdict.is_ok(), check(&backwards, tolerance).is_ok(), "the order of the records matters");
        }
        verdict
    }

    /// S1: each that had the lease after the other let it go, or let it run out.
    #[test]
    fn leases_that_follow_one_another_are_sound() {
        let released = [
            acquire("a", 0, 1),
            renew("a", 5, 1),
            call("a", Verb::Release, 7, Outcome::Done, None),
            acquire("b", 8, 2),
            call("a", Verb::Renew, 9, Outcome::Refused, None),
        ];
        let summary = verdict(&released).unwrap();
        assert_eq!((summary.grants, summary.renewals, summary.losses, summary.releases), (2, 1, 1, 1));
        assert_eq!(summary.takeovers, 0);
        assert_eq!(verdict(&[acquire("a", 0, 1), acquire("b", 10, 2)]).unwrap().takeovers, 1);
    }

    /// S1: a release that was sent and never answered may have freed the lease, and a dropped renewal cannot have prolonged it.
    #[test]
    fn calls_without_an_answer_promise_nothing() {
        for outcome in [Outcome::Dropped, Outcome::Failed] {
            assert!(
                verdict(&[acquire("a", 0, 1), call("a", Verb::Release, 2, outcome, None), acquire("b", 3, 2)]).is_ok()
            );
            assert!(
                verdict(&[acquire("a", 0, 1), call("a", Verb::Renew, 8, outcome, None), acquire("b", 11, 2)]).is_ok()
            );
            let lost = verdict(&[acquire("a", 0, 1), call("a", Verb::Renew, 2, outcome, None), acquire("b", 5, 2)]);
            assert!(matches!(lost, Err(Violation::TwoOwners { .. })), "{lost:?}");
        }
    }

    /// S1: a shorter lease than before is certain for the shorter time only.
    #[test]
    fn a_renewal_may_cut_the_lease() {
        let cut = Record { duration_millis: 2, ..renew("a", 1, 1) };
        assert!(verdict(&[acquire("a", 0, 1), cut, acquire("b", 5, 2)]).is_ok());
    }

    /// S1: two owners at once, by acquisition and by renewal.
    #[test]
    fn two_owners_at_once_are_found() {
        for records in [
            vec![acquire("a", 0, 1), acquire("b", 5, 2)],
            vec![acquire("a", 0, 1), renew("a", 8, 1), acquire("b", 12, 2)],
            vec![acquire("a", 0, 1), acquire("b", 11, 2), renew("a", 12, 1)],
        ] {
            let found = verdict(&records).unwrap_err();
            assert!(matches!(found, Violation::TwoOwners { .. }), "{found}");
        }
    }

    /// S1: a grant whose answer took longer than its lease lasts has no interval of its own, and is found all the same.
    #[test]
    fn a_late_grant_while_another_has_the_lease_is_found() {
        let late = Record { duration_millis: 1, returned: 6 * MILLI, ..acquire("b", 2, 2) };
        let found = verdict(&[acquire("a", 0, 1), late]).unwrap_err();
        assert!(matches!(found, Violation::GrantedWhileHeld { .. }), "{found}");
        let early = Record { duration_millis: 1, returned: 30 * MILLI, ..acquire("b", 2, 2) };
        assert!(verdict(&[acquire("a", 0, 1), early]).is_ok());
    }

    /// S6: a token that falls, and one that comes twice.
    #[test]
    fn tokens_that_do_not_rise_are_found() {
        for token in [7, 6] {
            let found = verdict(&[acquire("a", 0, 7), acquire("b", 20, token)]).unwrap_err();
            assert!(matches!(found, Violation::TokenDidNotRise { .. }), "{found}");
        }
        // Acquisitions at the same time may have got their tokens in either order.
        let slow = Record { returned: 30 * MILLI, ..acquire("a", 0, 8) };
        assert!(verdict(&[slow, acquire("b", 11, 7)]).is_ok());
    }

    /// S4: a renewal that answers another token belongs to another term.
    #[test]
    fn a_renewal_with_another_token_is_found() {
        let found = verdict(&[acquire("a", 0, 7), renew("a", 2, 8)]).unwrap_err();
        assert!(matches!(found, Violation::TokenChanged { granted: 7, .. }), "{found}");
    }

    /// S1: names have nothing to do with one another.
    #[test]
    fn each_name_has_a_history_of_its_own() {
        let other = Record { name: "other".to_owned(), ..acquire("b", 1, 1) };
        assert!(verdict(&[acquire("a", 0, 1), other]).is_ok());
    }
}
