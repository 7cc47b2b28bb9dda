//! The suite on SQLite, each case on a file of its own, plain and as `Arc<dyn LeaseStore>`.

mod harness;

use harness::SqliteHarness;
use lease_conformance::{Dyn, suite};

suite! {
    conformance: SqliteHarness,
    conformance_dyn: Dyn<SqliteHarness>;
    without {
        lock_row: "SQLite locks the whole file and no row",
        wakes: "a SQLite file tells nobody that it has changed",
    }
}
