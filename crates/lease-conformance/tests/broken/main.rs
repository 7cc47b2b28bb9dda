//! The suite's test of itself: every case must be able to fail, and every broken store must be caught.

mod database;
mod fault;
mod statements;
mod store;

use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    thread,
};

use lease_conformance::{CASES, Case, Dyn, Runner, run, runners, suite};

use crate::{
    database::{Broken, FAULT},
    fault::Fault,
};

// The store of these tests is sound when it has no fault. Of all stores it alone runs every case, for it has every hook.
suite! {
    conformance: Broken,
    conformance_dyn: Dyn<Broken>,
}

/// S1 to S14: each case catches a store that breaks one of the case's own rules, and each broken store is caught by a case of the rule
/// that it breaks.
#[test]
fn every_case_can_fail_and_every_fault_is_caught() {
    let caught = matrix();
    let catches = |case: &Case| caught.iter().any(|(_, cases)| cases.contains(&case));
    let blind: Vec<&str> = CASES.iter().filter(|case| !catches(case)).map(|case| case.name).collect();
    let missed: Vec<Fault> = caught.iter().filter(|(_, cases)| cases.is_empty()).map(|(fault, _)| *fault).collect();
    assert!(blind.is_empty(), "cases that catch no store which breaks their rule: {blind:?}");
    assert!(missed.is_empty(), "broken stores that no case of their rule catches: {missed:?}");
}

/// S1 to S14: no rule is without a broken store.
#[test]
fn every_rule_is_broken_by_a_store() {
    let mut rules: BTreeMap<&str, usize> = BTreeMap::new();
    for fault in Fault::ALL {
        *rules.entry(fault.rule()).or_default() += 1;
    }
    for rule in (1..=14).map(|number| format!("S{number}")) {
        assert!(rules.contains_key(rule.as_str()), "no store breaks {rule}");
    }
}

/// For each fault the cases of its rule that fail on it.
fn matrix() -> Vec<(Fault, Vec<&'static Case>)> {
    let report = panic::take_hook();
    // A case that fails as it should is not worth a message; a test that fails is.
    panic::set_hook(Box::new(move |panic| {
        if FAULT.get().is_none() {
            report(panic);
        }
    }));
    let runners = runners::<Broken>();
    let work =
        |faults: &[Fault]| -> Vec<_> { faults.iter().map(|fault| (*fault, failures(&runners, *fault))).collect() };
    let (one, other) = Fault::ALL.split_at(Fault::ALL.len() / 2);
    thread::scope(|scope| {
        let one = scope.spawn(|| work(one));
        let mut caught = work(other);
        caught.extend(one.join().expect("the matrix itself does not panic"));
        caught
    })
}

fn failures(runners: &[(&'static Case, Runner<Broken>)], fault: Fault) -> Vec<&'static Case> {
    let of_its_rule = runners.iter().filter(|(case, _)| case.rules().any(|rule| rule == fault.rule()));
    FAULT.set(Some(fault));
    let fails = |runner: Runner<Broken>| panic::catch_unwind(AssertUnwindSafe(|| run(runner))).is_err();
    let failures = of_its_rule.filter(|(_, runner)| fails(*runner)).map(|(case, _)| *case).collect();
    FAULT.set(None);
    failures
}
