//! `suite!`: one plain test for each case.

/// Makes one test of each case, in one module for each harness and below it one for each theme.
///
/// The names of the hooks that a backend cannot have come under `without`, each with the reason; a case that needs one of them is an
/// ignored test that shows the reason. The hooks are `row`, `delete_row`, `force_release`, `request_hand_over`, `drop_table`,
/// `lock_row`, `stall`, which are methods of [`Harness`](crate::Harness), and `wakes`: that the store's
/// [`watch`](lease_core::LeaseStore::watch) wakes on a release.
///
/// ```text
/// lease_conformance::suite! {
///     conformance: SqliteHarness,
///     conformance_dyn: Dyn<SqliteHarness>;
///     without { lock_row: "SQLite locks the whole file and no row" }
/// }
/// ```
///
/// A misspelt hook does not compile.
///
/// Every case needs `server` as well: under `without`, and a `cfg`, it shows the whole suite as ignored where there is no server.
///
/// The tests are `#[test]` functions that start the runtime which the harness chooses, and end with a panic when a case hangs.
#[macro_export]
macro_rules! suite {
    ($($module:ident: $harness:ty),+ $(,)?) => {
        $crate::suite! { $($module: $harness),+; without {} }
    };
    ($($module:ident: $harness:ty),+ $(,)?; without $without:tt) => {
        $crate::__known_hooks! $without
        $(
            mod $module {
                use super::*;

                type Subject = $harness;

                $crate::__cases! { [$crate::__tests] $without }
            }
        )+
    };
}

/// Refuses a misspelt hook, which would otherwise ignore nothing.
///
/// ```
/// lease_conformance::__known_hooks! { lock_row: "my database locks no rows" }
/// ```
///
/// ```compile_fail
/// lease_conformance::__known_hooks! { lock_rows: "my database locks no rows" }
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! __known_hooks {
    ($($hook:ident: $reason:literal),* $(,)?) => { $($crate::__known_hooks! { @ $hook })* };
    (@ row) => {};
    (@ delete_row) => {};
    (@ force_release) => {};
    (@ request_hand_over) => {};
    (@ drop_table) => {};
    (@ lock_row) => {};
    (@ stall) => {};
    (@ wakes) => {};
    (@ server) => {};
    (@ $unknown:ident) => { compile_error!(concat!("`", stringify!($unknown), "` is no hook of `Harness`")); };
}

/// One module for each theme.
#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ($without:tt $($theme:ident { $($case:ident $rules:literal [$($hook:ident)*];)+ })+) => {
        $(
            mod $theme {
                $($crate::__test! { [server $($hook)*] $without $without ($theme $case) })+
            }
        )+
    };
}

/// One test: looks each hook that the case needs up in the list of those that are missing.
#[doc(hidden)]
#[macro_export]
macro_rules! __test {
    ([] $missing:tt $without:tt ($theme:ident $case:ident)) => {
        #[test]
        fn $case() {
            $crate::run::<super::Subject>(|harness| ::std::boxed::Box::pin($crate::cases::$theme::$case(harness)));
        }
    };
    ([server $($more:ident)*] { server: $reason:literal $($rest:tt)* } $without:tt $case:tt) => {
        $crate::__test! { @ignored $reason $case }
    };
    ([row $($more:ident)*] { row: $reason:literal $($rest:tt)* } $without:tt $case:tt) => {
        $crate::__test! { @ignored $reason $case }
    };
    ([delete_row $($more:ident)*] { delete_row: $reason:literal $($rest:tt)* } $without:tt $case:tt) => {
        $crate::__test! { @ignored $reason $case }
    };
    ([force_release $($more:ident)*] { force_release: $reason:literal $($rest:tt)* } $without:tt $case:tt) => {
        $crate::__test! { @ignored $reason $case }
    };
    ([request_hand_over $($more:ident)*] { request_hand_over: $reason:literal $($rest:tt)* } $without:tt $case:tt) => {
        $crate::__test! { @ignored $reason $case }
    };
    ([drop_table $($more:ident)*] { drop_table: $reason:literal $($rest:tt)* } $without:tt $case:tt) => {
        $crate::__test! { @ignored $reason $case }
    };
    ([lock_row $($more:ident)*] { lock_row: $reason:literal $($rest:tt)* } $without:tt $case:tt) => {
        $crate::__test! { @ignored $reason $case }
    };
    ([stall $($more:ident)*] { stall: $reason:literal $($rest:tt)* } $without:tt $case:tt) => {
        $crate::__test! { @ignored $reason $case }
    };
    ([wakes $($more:ident)*] { wakes: $reason:literal $($rest:tt)* } $without:tt $case:tt) => {
        $crate::__test! { @ignored $reason $case }
    };
    // The first of the missing hooks is another one: go on with the rest of them.
    ([$($hook:ident)+] { $other:ident: $reason:literal $(, $($rest:tt)*)? } $without:tt $case:tt) => {
        $crate::__test! { [$($hook)+] { $($($rest)*)? } $without $case }
    };
    // This hook is not missing: go on with the case's next one.
    ([$hook:ident $($more:ident)*] {} $without:tt $case:tt) => {
        $crate::__test! { [$($more)*] $without $without $case }
    };
    (@ignored $reason:literal ($theme:ident $case:ident)) => {
        #[test]
        #[ignore = $reason]
        fn $case() {
            $crate::run::<super::Subject>(|harness| ::std::boxed::Box::pin($crate::cases::$theme::$case(harness)));
        }
    };
}
