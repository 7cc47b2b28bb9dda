//! SQL Server's error numbers, and the kinds that they are of.

use lease_core::ErrorKind;

/// The number under which Babelfish passes on whatever PostgreSQL says that SQL Server has no number for.
const BABELFISH: u32 = 33_557_097;

/// What the store's own statements throw: a name that is contended, and a transaction that is not there.
const CONTENDED: u32 = 51_205;
const NO_TRANSACTION: u32 = 51_206;

/// The first of the numbers that belong to whoever calls THROW: somebody's trigger, here.
const FIRST_OF_USERS: u32 = 50_000;

pub(super) fn classify(number: u32, message: &str) -> ErrorKind {
    match number {
        // The victim of a deadlock; of a conflict of snapshots; of a race to insert.
        1205 | 3960 | 2627 | 2601 | CONTENDED => ErrorKind::Contended,
        // A lock was not had within LOCK_TIMEOUT.
        1222 => ErrorKind::Busy,
        // A database that is read-only, or in emergency mode; a replica that only reads.
        3906 | 3908 | 976 | 978 | 979 | 3949 => ErrorKind::ReadOnly,
        // No object, procedure, schema or column of this name; as many columns; a column of another type.
        208 | 1088 | 2812 | 2760 | 3701 | 4902 | 207 | 213 | 206 | 257 => ErrorKind::NotMigrated,
        // A right is missing; the login fails, or may not open the database; Azure's firewall.
        229 | 230 | 262 | 297 | 300 | 916 | 15247 | 18452 | 18456 | 18486..=18488 | 40532 | 40615 => ErrorKind::Denied,
        // No such database.
        911 | 4060 | 4064 => ErrorKind::InvalidConfig,
        // Full: a filegroup, the log, the disk, Azure's quota.
        1101 | 1105 | 9002 | 40544 => ErrorKind::StorageFull,
        // The transaction is doomed, or not where the statement needs it.
        3902 | 3903 | 3930 | 3971 | 3989 | 3998 | NO_TRANSACTION => ErrorKind::RestartTransaction,
        // A server that is too old, somebody's trigger or constraint, a value that is out of range or too long, an isolation level that
        // the hints cannot go with: no retry mends that.
        102 | 137 | 155 | 156 | 195 | 241 | 242 | 245 | 319 | 321 | 448 | 468 | 515 | 517 | 547 | 650 | 2628 | 3609
        | 3616 | 4104 | 8114 | 8115 | 8152 | 13609 | 40508 => ErrorKind::Unsupported,
        _ if is_unavailable(number) => ErrorKind::Unavailable,
        BABELFISH => classify_text(message),
        FIRST_OF_USERS.. => ErrorKind::Unsupported,
        _ => ErrorKind::Unexpected,
    }
}

/// Whether the server does not serve for now.
fn is_unavailable(number: u32) -> bool {
    matches!(
        number,
        // Memory, locks, threads.
        701 | 802 | 1204 | 8628 | 8645 | 8651
        // A session that was killed; a server that stops, starts, is paused or has no connection left.
        | 596 | 6005 | 17142 | 17187 | 17188 | 17197 | 17809 | 17810 | 18401 | 18451 | 18461
        // A database that is recovered, restored, off line, in another role, suspect or closed to others.
        | 922 | 924 | 926 | 927 | 942 | 945 | 952 | 983 | 9001
        // The network, as the server names it.
        | 20 | 64 | 121 | 233 | 10053 | 10054 | 10060
        // Azure, which moves a database, has too much to do, or has ended a session that took too much.
        | 4221 | 10928..=10930 | 40143 | 40197 | 40501 | 40540 | 40549..=40553 | 40613 | 40642 | 40648
        | 42108 | 42109 | 49918..=49920
    )
}

/// What PostgreSQL says, in the words of its own messages.
fn classify_text(message: &str) -> ErrorKind {
    let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
    if says(&["deadlock detected", "could not serialize access", "duplicate key value"]) {
        ErrorKind::Contended
    } else if says(&["lock timeout", "could not obtain lock"]) {
        ErrorKind::Busy
    } else if says(&["read-only transaction", "during recovery"]) {
        ErrorKind::ReadOnly
    } else if message.contains("does not exist") && says(&["relation", "column", "schema"]) {
        ErrorKind::NotMigrated
    } else if says(&["permission denied"]) {
        ErrorKind::Denied
    } else if message.starts_with("database") && message.contains("does not exist") {
        ErrorKind::InvalidConfig
    } else if says(&["No space left on device", "could not extend file"]) {
        ErrorKind::StorageFull
    } else if says(&["terminating connection", "canceling statement", "too many clients", "remaining connection slots"])
        || says(&["the database system is", "out of shared memory", "out of memory"])
    {
        ErrorKind::Unavailable
    } else if says(&[
        "syntax error",
        "not supported",
        "not currently supported",
        "violates",
        "out of range",
        "function",
    ]) {
        ErrorKind::Unsupported
    } else {
        ErrorKind::Unexpected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S8, CL-06
    #[test]
    fn every_native_number_has_its_kind() {
        let table: &[(ErrorKind, &[u32])] = &[
            (ErrorKind::Contended, &[1205, 3960, 2627, 2601, 51205]),
            (ErrorKind::Busy, &[1222]),
            (ErrorKind::ReadOnly, &[3906, 3908, 976, 978, 979]),
            (ErrorKind::NotMigrated, &[208, 207, 3701, 2760, 213, 206]),
            (ErrorKind::Denied, &[229, 230, 262, 18456, 18452, 18486, 18487, 18488, 916, 40615]),
            (ErrorKind::InvalidConfig, &[4060, 911]),
            (ErrorKind::StorageFull, &[1105, 9002, 40544]),
            (ErrorKind::RestartTransaction, &[3930, 3998, 51206]),
            (ErrorKind::Unsupported, &[8115, 517, 102, 547, 650, 3609, 3616, 50000, 51000]),
            (
                ErrorKind::Unavailable,
                &[40501, 40613, 40197, 10928, 10929, 49918, 49919, 49920, 4221, 596, 6005, 701, 922, 18401, 17142],
            ),
            (ErrorKind::Unexpected, &[266, 8134, 1]),
        ];
        for (kind, numbers) in table {
            for number in *numbers {
                assert_eq!(classify(*number, "any"), *kind, "{number}");
            }
        }
    }

    /// What Babelfish passes on has PostgreSQL's words.
    #[test]
    fn babelfishs_one_number_is_told_apart_by_its_text() {
        for (text, kind) in [
            ("relation \"dbo.singleton_leases\" does not exist", ErrorKind::NotMigrated),
            ("column \"outcome\" does not exist", ErrorKind::NotMigrated),
            ("permission denied for table singleton_leases", ErrorKind::Denied),
            ("canceling statement due to lock timeout", ErrorKind::Busy),
            ("canceling statement due to statement timeout", ErrorKind::Unavailable),
            ("terminating connection due to administrator command", ErrorKind::Unavailable),
            ("the database system is shutting down", ErrorKind::Unavailable),
            ("deadlock detected", ErrorKind::Contended),
            ("could not serialize access due to concurrent update", ErrorKind::Contended),
            ("cannot execute UPDATE in a read-only transaction", ErrorKind::ReadOnly),
            ("could not extend file \"base/1/2\": No space left on device", ErrorKind::StorageFull),
            ("function nofunc(integer) does not exist", ErrorKind::Unsupported),
            ("syntax error near 'AS' at line 1 and character position 8", ErrorKind::Unsupported),
            ("something else", ErrorKind::Unexpected),
        ] {
            assert_eq!(classify(BABELFISH, text), kind, "{text}");
        }
    }
}
