//! Which server a suite ran on, for the matrix.

use std::{env, fs};

/// Tells `cargo xtask matrix` which server a suite runs on: the product with its version, and where it came from. Without a matrix, it
/// does nothing.
///
/// # Panics
///
/// When the file that `LEASE_MATRIX_REPORT` names cannot be written: a matrix that knows nothing must not pass.
pub fn report(server: &str, source: &str) {
    let Some(path) = env::var_os("LEASE_MATRIX_REPORT") else { return };
    let report = serde_json::json!({ "server": server, "source": source }).to_string();
    fs::write(path, report).expect("the matrix's report can be written");
}
