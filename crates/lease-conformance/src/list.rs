//! The list of all cases: tests, self-test and `xtask` are made from it and from nothing else.

use std::{future::Future, pin::Pin, time::Duration};

use tokio::time::timeout;

use crate::Harness;

/// How long a case may take before it counts as hung.
const LIMIT: Duration = Duration::from_secs(180);

/// One case of the suite, as `xtask` and the matrix count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Case {
    /// The module that the case is in.
    pub theme: &'static str,
    /// The case's function and test.
    pub name: &'static str,
    /// The rules that it shows and the field cases that it comes from, such as `S4, RC-12`.
    pub rules: &'static str,
    /// The hooks of the harness that it needs.
    pub hooks: &'static [&'static str],
}

impl Case {
    /// The rules and field cases one by one.
    ///
    /// # Examples
    ///
    /// ```
    /// use lease_conformance::CASES;
    ///
    /// for rule in (1..=14).map(|number| format!("S{number}")) {
    ///     assert!(CASES.iter().any(|case| case.rules().any(|id| id == rule)), "{rule} has no case");
    /// }
    /// ```
    pub fn rules(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.rules.split(", ")
    }
}

/// A case that runs.
pub type CaseFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Begins a case on a harness that has just been started.
pub type Runner<H> = for<'a> fn(&'a H) -> CaseFuture<'a>;

/// Runs one case on a harness of its own, as each test of [`suite!`](crate::suite) does.
///
/// # Panics
///
/// When the case fails, or has not ended within three minutes.
pub fn run<H: Harness>(case: Runner<H>) {
    H::runtime().block_on(async {
        let harness = H::start().await;
        timeout(LIMIT, case(&harness)).await.unwrap_or_else(|_| panic!("the case has not ended within {LIMIT:?}"));
    });
}

macro_rules! list {
    ([] $($theme:ident { $($case:ident $rules:literal [$($hook:ident)*];)+ })+) => {
        /// Every case, in the order of the suite.
        pub const CASES: &[Case] = &[$($(
            Case {
                theme: stringify!($theme),
                name: stringify!($case),
                rules: $rules,
                hooks: &[$(stringify!($hook)),*],
            },
        )+)+];

        /// Every case of [`CASES`] with what runs it on `H`. The suite's test of itself uses it.
        pub fn runners<H: Harness>() -> Vec<(&'static Case, Runner<H>)> {
            let runners: &[Runner<H>] = &[$($(|harness| Box::pin(crate::cases::$theme::$case(harness)),)+)+];
            CASES.iter().zip(runners.iter().copied()).collect()
        }
    };
}

/// Gives the whole list to another macro, after the arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    ([$($macro:tt)+] $arguments:tt) => {
        $($macro)+! { $arguments
            acquire {
                empty_lease_is_acquired "S3" [];
                held_name_is_refused "S1, S3" [];
                same_owner_acquires_again "S3" [];
                expired_lease_is_acquired_by_another "S2, S3" [];
                each_name_is_a_lease_of_its_own "S1, S9" [];
                refusal_tells_the_time_left "S3" [];
                refusal_changes_nothing "S3, S8" [];
                refusal_writes_nothing "S3" [row];
                resting_lease_is_refused_without_an_owner "S3, S5" [];
                locked_row_counts_as_held "S3" [lock_row];
                locked_row_keeps_its_holder "S3" [lock_row];
            }
            race {
                one_of_many_wins_a_new_name "S1, S8, RC-01, RC-07" [];
                one_of_many_wins_an_expired_lease "S1, S8, RC-01, RC-02" [];
                random_history_is_sound "S1, S6" [];
            }
            renew {
                owner_renews "S4" [];
                renewal_keeps_the_token "S4, RN-10" [];
                renewal_is_refused_once_another_has_taken_over "S4, RC-11" [];
                renewal_is_refused_to_an_owner_that_never_had_the_lease "S4" [];
                shorter_renewal_cuts_the_lease "S4" [];
                expired_lease_is_renewed_with_the_same_token "S4, RC-12" [];
                renewal_is_refused_after_another_came_and_went "S4, RC-12" [];
                renewal_is_refused_after_a_release "S4" [];
                renewal_is_refused_while_the_lease_rests "S4, S5" [];
                renewal_is_refused_when_the_row_is_deleted "S4, S14" [delete_row];
                renewal_racing_a_release_leaves_the_lease_free "S4, S5, RC-15" [];
                refused_renewal_writes_nothing "S4, RC-11" [row];
                hand_over_is_told_until_the_next_grant "S4" [request_hand_over];
            }
            release {
                released_lease_is_acquired_at_once "S5" [];
                release_by_a_stranger_changes_nothing "S5, RC-14" [];
                expired_lease_is_released_by_its_owner "S5" [];
                late_release_after_a_takeover_changes_nothing "S5, RC-14" [];
                release_of_a_missing_row_is_false "S5, RC-14" [];
                second_release_is_false "S5" [];
                release_keeps_the_row_and_its_token "S5, S6" [row];
                refused_release_writes_nothing "S5, RC-14" [row];
            }
            release_after {
                lease_rests_until_the_hold_has_passed "S5" [];
                hold_counts_from_the_grant "S5" [row];
                hold_counts_from_the_last_grant "S5" [];
                hold_that_has_passed_frees_at_once "S5" [];
                last_owner_is_refused_too "S5" [];
                rest_by_a_stranger_changes_nothing "S5" [];
                expired_lease_is_laid_to_rest_by_its_owner "S5" [];
                rest_of_a_missing_row_is_false "S5" [];
                resting_lease_cannot_be_released "S5" [];
            }
            tokens {
                token_rises_after_a_release "S6" [];
                token_rises_after_a_rest "S6" [];
                token_rises_on_a_takeover "S6" [];
                token_rises_when_the_same_owner_acquires_again "S6" [];
                token_rises_through_churn "S6" [];
                token_is_not_below_the_clock "S6" [row];
                token_rises_though_the_clock_was_set_back "S6, CT-17" [row];
                token_rises_after_the_row_was_deleted "S6, S14" [delete_row];
            }
            term {
                grant_lasts_its_whole_duration "S7" [];
                repeated_grant_lasts_its_whole_duration "S7" [];
                takeover_lasts_its_whole_duration "S7" [];
                grant_after_a_foreign_lock_lasts_its_whole_duration "S3, S7, CT-04, CT-05" [lock_row];
                renewal_after_a_foreign_lock_lasts_its_whole_duration "S7, CT-04, CT-05" [lock_row];
                grant_after_a_foreign_insert_lasts_its_whole_duration "S7, CT-05" [lock_row];
            }
            clock {
                expiry_is_the_databases_clock_plus_the_duration "S2, OV-07" [row];
                renewed_expiry_is_the_databases_clock_plus_the_duration "S2, S4, OV-07" [row];
                expiry_is_judged_by_the_database "S2, S14" [];
                replicas_see_the_same_time_left "S2, CT-18" [];
                clock_set_back_grants_nothing_twice "S1, S2, CT-17" [row];
                clock_set_forward_ends_the_lease "S2, S4, CT-17" [row];
            }
            identity {
                confusable_names_never_meet "S9, NE-02, NE-03" [];
                confusable_owners_are_refused "S9, NE-02, NE-03" [];
                confusable_owners_cannot_renew_or_release "S9, NE-03" [];
                owner_comes_back_exactly "S9, NE-08" [];
            }
            durations {
                millisecond_lease_expires "S10" [];
                short_lease_expires_on_time "S10, CT-14" [];
                long_durations_are_granted "S10, OV-01" [];
                long_durations_are_renewed "S10, OV-01" [];
                long_holds_rest "S10, OV-01" [];
                long_durations_are_exact "S10, OV-01, OV-07" [row];
            }
            renew_many {
                answers_come_in_the_order_of_the_terms "S4" [];
                no_terms_have_no_answers "S4" [];
                repeated_term_is_answered_each_time "S4" [];
                thousand_leases_are_renewed "S4, S10" [];
                each_renewal_lasts_its_whole_duration "S4, S7" [];
                locked_row_does_not_hold_up_the_others "S3, S4" [lock_row];
            }
            cancel {
                dropped_acquire_leaves_the_row_before_or_after "S11, CX-02" [];
                dropped_renew_leaves_the_row_before_or_after "S11, CX-02" [];
                dropped_release_leaves_the_row_before_or_after "S11, CX-02" [];
                dropped_release_after_leaves_the_row_before_or_after "S11, CX-02" [];
                dropped_renew_many_leaves_the_rows_before_or_after "S11, CX-02" [];
                many_dropped_calls_leave_the_store_usable "S11, S13, CX-02" [];
            }
            bounded {
                crowd_is_answered_in_time "S12, S13" [];
                finished_calls_keep_no_connection "S13" [];
                stalled_calls_end_in_time "S8, S12, CL-03, CX-04" [stall];
                store_works_again_after_a_stall "S12, S14, CL-03" [stall];
            }
            truth {
                answer_is_committed_when_it_arrives "S8, S13" [];
                grant_is_proof "S8" [row];
                replicas_agree "S1, S8" [];
            }
            watch {
                watching_changes_nothing "S3, S11, S13" [];
                release_before_the_first_poll_is_not_missed "S3" [wakes];
                release_wakes_every_watcher "S3" [wakes];
            }
            healing {
                changes_by_other_replicas_are_seen "S14" [];
                deleted_row_is_acquired_anew "S14" [delete_row];
                recreated_table_is_used_at_once "S14" [drop_table];
                missing_table_is_an_error_until_it_is_there "S8, S14, SM-02" [drop_table];
            }
            force_release {
                forced_out_lease_rests_until_it_would_have_expired "S1, S4" [force_release];
                forced_out_lease_is_free_at_once_when_asked "S4, S5" [force_release];
                forced_out_owner_cannot_revive_its_expired_lease "S4" [force_release];
                token_rises_when_the_owner_is_forced_out "S6" [force_release row];
                resting_lease_is_freed_by_force_alone "S5" [force_release];
                nothing_to_force_out_is_no_error "S5, S8" [force_release];
                locked_row_is_contended "S3, S8" [force_release lock_row];
            }
        }
    };
}

__cases! { [list] [] }
