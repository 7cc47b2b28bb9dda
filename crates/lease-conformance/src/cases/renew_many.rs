//! Many renewals in one call.

use futures::future::join_all;
use lease_core::{ErrorKind, LeaseDuration, LeaseStore, LossReason, OwnerId, Renewal, Term};

use crate::{
    Harness,
    kit::{assert_time_left, extend, grant, long, millis, name, owner, refusal, release, renewed, timed},
};

/// S4: the answers come one for each term and in the order of the terms, renewals and losses mixed.
pub async fn answers_come_in_the_order_of_the_terms(harness: &impl Harness) {
    let store = harness.store().await;
    let (a, b) = (owner("a"), owner("b"));
    let mut terms = Vec::new();
    for id in ["z", "held", "taken", "free", "expired", "missing", "a"] {
        let token = match id {
            "missing" => lease_core::FencingToken::new(1),
            _ => grant(&store, &name(id), &a, long()).await.value,
        };
        terms.push(Term::new(name(id), a.clone(), token));
    }
    harness.expire(&name("taken")).await;
    grant(&store, &name("taken"), &b, long()).await;
    release(&store, &name("free"), &a, true).await;
    harness.expire(&name("expired")).await;

    let answers = store.renew_many(&terms, long()).await;
    assert_eq!(answers.len(), terms.len());
    for (term, answer) in terms.iter().zip(&answers) {
        let expected = match term.name.as_str() {
            "taken" => Renewal::Lost(LossReason::TakenOver(b.clone())),
            "free" => Renewal::Lost(LossReason::ForcedOut),
            "missing" => Renewal::Lost(LossReason::Deleted),
            _ => Renewal::renewed(term.token, false),
        };
        assert_eq!(answer.as_ref().ok(), Some(&expected), "{:?}: {answer:?}", term.name);
    }
}

/// S4: nothing to renew is nothing to answer, and no error.
pub async fn no_terms_have_no_answers(harness: &impl Harness) {
    let store = harness.store().await;
    assert!(store.renew_many(&[], long()).await.is_empty());
    grant(&store, &name("job"), &owner("a"), long()).await;
}

/// S4: a term that comes twice, or a name that comes with two owners, is answered at each place.
pub async fn repeated_term_is_answered_each_time(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let token = grant(&store, &job, &a, long()).await.value;
    let terms = [&a, &b, &a, &a].map(|owner| Term::new(job.clone(), owner.clone(), token));
    let answers = store.renew_many(&terms, long()).await;
    assert_eq!(answers.len(), terms.len());
    for (term, answer) in terms.iter().zip(&answers) {
        let expected = if term.owner == a {
            Renewal::renewed(token, false)
        } else {
            Renewal::Lost(LossReason::TakenOver(a.clone()))
        };
        assert_eq!(answer.as_ref().ok(), Some(&expected), "{answer:?}");
    }
}

/// S4, S10: a thousand leases are renewed by one call, each with its own token.
pub async fn thousand_leases_are_renewed(harness: &impl Harness) {
    let store = harness.store().await;
    let a = owner("a");
    let terms = terms(&store, &a, 1000, long()).await;
    let answers = store.renew_many(&terms, long()).await;
    assert_eq!(answers.len(), terms.len());
    for (term, answer) in terms.iter().zip(&answers) {
        assert_eq!(renewed(answer).map(|renewed| renewed.token), Some(term.token), "{:?}: {answer:?}", term.name);
    }
}

/// S4, S7: each of the leases lasts the whole duration from the call, also one that had run out.
pub async fn each_renewal_lasts_its_whole_duration(harness: &impl Harness) {
    let store = harness.store().await;
    let (a, b) = (owner("a"), owner("b"));
    let terms = terms(&store, &a, 8, millis(60_000)).await;
    harness.expire(&terms[3].name).await;
    let call = timed(store.renew_many(&terms, long())).await;
    for (term, answer) in terms.iter().zip(&call.value) {
        assert!(renewed(answer).is_some(), "{:?}: {answer:?}", term.name);
        let refused = refusal(&store, &term.name, &b).await;
        assert_eq!(refused.value.owner.as_ref(), Some(&a));
        assert_time_left(harness, &call, long(), &refused);
    }
}

/// S3, S4: a foreign lock on one row is that term's error, to be tried again alone; the others are renewed.
pub async fn locked_row_does_not_hold_up_the_others(harness: &impl Harness) {
    let store = harness.store().await;
    let (a, b) = (owner("a"), owner("b"));
    let terms = terms(&store, &a, 8, millis(60_000)).await;
    let locked = &terms[3];
    let lock = harness.lock_row(&locked.name).await;
    let call = timed(store.renew_many(&terms, long())).await;
    lock.undo().await;
    for (term, answer) in terms.iter().zip(&call.value) {
        if term == locked {
            let kind = answer.as_ref().err().map(lease_core::StoreError::kind);
            assert_eq!(kind, Some(ErrorKind::Contended), "{:?}: {answer:?}", term.name);
        } else {
            assert!(renewed(answer).is_some(), "{:?}: {answer:?}", term.name);
            assert_time_left(harness, &call, long(), &refusal(&store, &term.name, &b).await);
        }
    }
    assert_eq!(extend(&store, &locked.name, &a, long()).await.value.token, locked.token);
}

/// Grants `count` leases to `owner`, a few at a time.
async fn terms(store: &impl LeaseStore, owner: &OwnerId, count: usize, duration: LeaseDuration) -> Vec<Term> {
    let names: Vec<_> = (0..count).map(|number| name(&format!("job-{number}"))).collect();
    let mut terms = Vec::with_capacity(count);
    for few in names.chunks(32) {
        let granted = join_all(few.iter().map(|name| grant(store, name, owner, duration))).await;
        terms.extend(few.iter().zip(granted).map(|(name, token)| Term::new(name.clone(), owner.clone(), token.value)));
    }
    terms
}
