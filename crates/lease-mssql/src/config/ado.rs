//! ADO.NET connection strings.

use super::{
    DEFAULT_PORT, MssqlConfig,
    key::{self, Key},
};

/// Reads a connection string. The fault never quotes a key that nobody knows, for it may be the rest of a password with a `;` in it.
pub(super) fn parse(text: &str) -> Result<MssqlConfig, String> {
    let (mut config, mut user, mut password) = (MssqlConfig::new(""), String::new(), String::new());
    for (key, value) in pairs(text)? {
        match key.as_str() {
            "server" | "datasource" | "address" | "addr" | "networkaddress" => {
                let (host, port) = server(&value)?;
                config = MssqlConfig { host, port, ..config };
            }
            "database" | "initialcatalog" => config = config.database(value),
            "userid" | "uid" | "user" => user = value,
            "password" | "pwd" => password = value,
            "integratedsecurity" | "trustedconnection" if key::truth(&value) == Some(false) => {}
            "authentication" if value.replace(' ', "").eq_ignore_ascii_case("SqlPassword") => {}
            "applicationintent" if value.eq_ignore_ascii_case("ReadWrite") => {}
            // They are about what a store has no part in.
            "persistsecurityinfo"
            | "multipleactiveresultsets"
            | "pooling"
            | "minpoolsize"
            | "multisubnetfailover"
            | "workstationid"
            | "wsid" => {}
            name => {
                let refusal = || match refused(name) {
                    Some(reason) => format!("the connection string's {name:?} {reason}"),
                    None => {
                        "the connection string has a key that is not known: a value with a `;` in it stands in quotes"
                            .into()
                    }
                };
                config = named(name).ok_or_else(refusal)?.set(config, &value)?;
            }
        }
    }
    Ok(config.login(user, password))
}

/// The setting of a key without its spaces and underscores.
fn named(name: &str) -> Option<Key> {
    Some(match name {
        "encrypt" => Key::Encrypt,
        "trustservercertificate" | "trustcert" => Key::TrustCert,
        "trustservercertificateca" | "ca" => Key::Ca,
        "hostnameincertificate" => Key::HostnameInCertificate,
        "applicationname" | "app" => Key::ApplicationName,
        "connecttimeout" | "connectiontimeout" | "timeout" => Key::ConnectTimeout,
        "commandtimeout" | "operationtimeout" => Key::OperationTimeout,
        "maxpoolsize" | "poolsize" => Key::PoolSize,
        "schema" => Key::Schema,
        "table" => Key::Table,
        _ => return None,
    })
}

/// Why a key that ADO.NET knows is not taken, or not with its value.
fn refused(name: &str) -> Option<&'static str> {
    Some(match name {
        "integratedsecurity" | "trustedconnection" | "authentication" => {
            "asks for a login other than by user and password"
        }
        "applicationintent" => "asks for a replica that only reads",
        "failoverpartner" => "names a second server: name the listener of an availability group",
        "attachdbfilename"
        | "extendedproperties"
        | "initialfilename"
        | "userinstance"
        | "contextconnection"
        | "servercertificate"
        | "columnencryptionsetting"
        | "network"
        | "net"
        | "networklibrary"
        | "packetsize"
        | "typesystemversion"
        | "replication"
        | "enlist"
        | "currentlanguage"
        | "language" => "is for other drivers",
        _ => return None,
    })
}

/// `tcp:HOST,PORT`, without showing it.
fn server(value: &str) -> Result<(String, u16), String> {
    let value = value.strip_prefix("tcp:").unwrap_or(value);
    let (host, port) = value.split_once(',').map_or((value, None), |(host, port)| (host, Some(port)));
    let fault = "the connection string's server has a port that is no number from 1 to 65535";
    let port = match port {
        Some(port) => port.trim().parse().ok().filter(|port| *port > 0).ok_or(fault)?,
        None => DEFAULT_PORT,
    };
    let host = match host.trim() {
        "." | "(local)" => "localhost",
        host => host,
    };
    Ok((host.into(), port))
}

/// The keys, in lower case and without spaces and underscores, and their values. A value with a `;`, or with spaces at its ends, stands
/// in quotes of either kind, and a quote in it is doubled.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start_matches([';', ' ', '\t', '\r', '\n']);
    while !rest.is_empty() {
        let (key, tail) = rest.split_once('=').ok_or("the connection string has a part without `=`")?;
        let key = key.chars().filter(|c| !c.is_whitespace() && *c != '_').flat_map(char::to_lowercase).collect();
        let tail = tail.trim_start();
        let (value, tail) = if let Some(quote @ ('\'' | '"')) = tail.chars().next() {
            quoted(&tail[1..], quote)?
        } else {
            let (value, tail) = tail.split_at(tail.find(';').unwrap_or(tail.len()));
            (value.trim_end().to_owned(), tail)
        };
        pairs.push((key, value));
        rest = tail.trim_start_matches([';', ' ', '\t', '\r', '\n']);
    }
    Ok(pairs)
}

/// A value up to its closing quote, and what is behind.
fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (part, tail) = rest.split_once(quote).ok_or("the connection string has a quote that is not closed")?;
        value.push_str(part);
        match tail.strip_prefix(quote) {
            Some(_) => value.push(quote),
            None if tail.trim_start().is_empty() || tail.trim_start().starts_with(';') => return Ok((value, tail)),
            None => return Err("the connection string has text behind a closing quote".into()),
        }
        rest = &tail[1..];
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Encrypt;

    /// What Azure's portal shows, and both of its timeouts.
    #[test]
    fn everything_has_its_place() {
        let text = "Server=tcp:db.example.com,1444;Initial Catalog=service;Persist Security Info=False;User ID=app;\
                    Password={x};MultipleActiveResultSets=False;Encrypt=True;TrustServerCertificate=False;\
                    Connection Timeout=30;Command Timeout=2;Max Pool Size=3;Application Name=web;";
        let config = parse(text).unwrap();
        assert_eq!((config.host.as_str(), config.port), ("db.example.com", 1444));
        assert_eq!((config.database.as_deref(), config.user.as_str()), (Some("service"), "app"));
        assert_eq!((config.password.as_str(), config.encrypt, config.trust_cert), ("{x}", Encrypt::Mandatory, false));
        assert_eq!(
            (config.connect_timeout, config.operation_timeout),
            (Duration::from_secs(30), Duration::from_secs(2))
        );
        assert_eq!((config.pool_size, config.application_name.as_str()), (3, "web"));
        let config =
            parse("data source = (local) ; UID=sa; pwd = 1 ;trust_cert=yes;encrypt=Strict;schema=jobs;table=leases");
        let config = config.unwrap();
        assert_eq!((config.host.as_str(), config.port, config.password.as_str()), ("localhost", 1433, "1"));
        assert_eq!((config.trust_cert, config.encrypt), (true, Encrypt::Strict));
        assert_eq!((config.schema.as_deref(), config.table.as_str()), (Some("jobs"), "leases"));
    }

    #[test]
    fn quotes_keep_what_they_hold() {
        let password = |text: &str| parse(&format!("Server=db;{text};User ID=app")).map(|config| config.password);
        assert_eq!(password("Password='a;b=c '").unwrap(), "a;b=c ");
        assert_eq!(password("Password=\"it's\"").unwrap(), "it's");
        assert_eq!(password("Password='it''s'").unwrap(), "it's");
        assert_eq!(password("Password=a'b=\"c").unwrap(), "a'b=\"c");
        assert_eq!(password("Password=").unwrap(), "");
        assert!(password("Password='open").is_err());
        assert!(password("Password='a'b").is_err());
    }

    /// The fault names the rule, and nothing that could be a password.
    #[test]
    fn faults_show_no_password() {
        for (text, word) in [
            ("Server=db;User ID=app;Password=x;secret=1", "quotes"),
            ("Server=db;User ID=app;Password=x;secret", "without `=`"),
            ("Server=db;User ID=app;Password='secret", "not closed"),
            ("Server=db;User ID=app;Password='secret'x", "closing quote"),
            ("Server=db,secret;User ID=app", "port"),
            ("Server=db,0;User ID=app;Password=secret", "port"),
            ("Server=db;Integrated Security=SSPI;Password=secret", "integratedsecurity"),
            ("Server=db;Authentication=Active Directory Default;Password=secret", "authentication"),
            ("Server=db;ApplicationIntent=ReadOnly;Password=secret", "only reads"),
            ("Server=db;Failover Partner=other;Password=secret", "listener"),
            ("Server=db;Packet Size=512;Password=secret", "packetsize"),
            ("Server=db;Password=secret;Encrypt=maybe", "maybe"),
            ("Server=db;Password=secret;Connect Timeout=soon", "soon"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(word) && !fault.contains("secret"), "{text}: {fault}");
            assert!(!format!("{:?}", MssqlConfig::from(text)).contains("secret"));
        }
        for (text, word) in [
            ("Server=db\\SQLEXPRESS;User ID=app;Password=secret", "instance"),
            ("User ID=app;Password=secret", "host"),
            ("Server=db;Password=secret", "user"),
            ("Server=db;User ID=app;Password=secret;Connect Timeout=0", "connect_timeout"),
            ("Server=np:\\\\db\\pipe;User ID=app;Password=secret", "instance"),
            ("Server=lpc db;User ID=app;Password=secret", "neither a name nor an address"),
        ] {
            let error = parse(text).unwrap().settings().err().unwrap().into_error(lease_core::Operation::Connect);
            let error = format!("{error} {error:?}");
            assert!(error.contains(word) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
