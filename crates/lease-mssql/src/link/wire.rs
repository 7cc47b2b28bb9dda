//! What the wire can do to a call, without a server: each fault ends in time, with the right kind, and leaves the store usable.

use std::io;

use lease_core::Operation;
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::Notify};

use super::*;
use crate::{Encrypt, MssqlConfig, connection};

mod connect;
mod peer;
mod tls;

use peer::{PATIENCE, Peer, Session, done, error, routing, rows, rows_of};

/// A call that is to run out of time.
const SHORT: Duration = Duration::from_millis(300);

fn config(peer: &Peer) -> MssqlConfig {
    let config = MssqlConfig::new("127.0.0.1").port(peer.address.port()).login("app", "secret").encrypt(Encrypt::Never);
    config.operation_timeout(PATIENCE).pool_size(1)
}

fn link(config: &MssqlConfig) -> Link {
    Link::new(connection::pool(&config.settings().unwrap()).unwrap())
}

/// What a statement's one row says.
async fn ask_within(link: &Link, limit: Duration, is_repeatable: bool) -> Result<i32, Failure> {
    let statement = Statement { text: "any".into(), is_repeatable };
    let asked = LocalInstant::now();
    let answer = link.query(Limit::new(limit), &statement, &[Value::Int(1), Value::Text("é".into())]).await;
    let taken = LocalInstant::now().saturating_duration_since(asked);
    // The machine may be busy with other tests.
    assert!(taken < limit + Duration::from_secs(5), "{taken:?} of {limit:?}");
    answer.map(|rows| rows[0].try_get(0).unwrap().unwrap())
}

/// Runs a statement that must not be sent twice.
async fn ask(link: &Link) -> Result<i32, Failure> {
    ask_within(link, PATIENCE, false).await
}

fn assert_kind(failure: &Failure, kind: ErrorKind, word: &str) {
    let error = failure.clone().into_error(Operation::Renew);
    assert_eq!(error.kind(), kind, "{error:?}");
    let text = format!("{error} {error:?}");
    assert!(text.contains(word) && !text.contains("secret"), "{word}: {text}");
}

/// CX-04: after half of an answer nobody knows; a statement that may be repeated is, on another connection.
#[tokio::test]
async fn half_an_answer_is_none() {
    let peer = Peer::start(|number, stream| async move {
        let mut session = Session(stream);
        if number > 1 {
            return session.serve().await;
        }
        session.log_in().await?;
        session.answer(&rows(&[7])).await?;
        session.hear().await?;
        session.say_half(&rows(&[8])).await?;
        session.0.shutdown().await
    })
    .await;
    let link = link(&config(&peer));
    assert_eq!(ask(&link).await.unwrap(), 7);
    assert_kind(&ask(&link).await.unwrap_err(), ErrorKind::Indeterminate, "");
    assert_eq!(ask(&link).await.unwrap(), 7);
    assert_eq!(ask_within(&link, PATIENCE, true).await.unwrap(), 7);
    assert_eq!(peer.accepted(), 3);
}

/// CX-01, S12: an error that nothing follows, and a row that nothing follows, end with the call; what comes later is never read.
#[tokio::test]
async fn an_answer_without_an_end_is_given_up() {
    let peer = Peer::start(|number, stream| async move {
        let mut session = Session(stream);
        let beginning = match number {
            0 => error(1205, 13, "deadlock victim"),
            1 => rows(&[8]),
            _ => return session.serve().await,
        };
        session.log_in().await?;
        session.hear().await?;
        session.say_half(&[beginning, vec![0xFD; 200]].concat()).await?;
        session.until_closed().await
    })
    .await;
    let link = link(&config(&peer));
    for _ in 0..2 {
        let failure = ask_within(&link, SHORT, true).await.unwrap_err();
        assert_kind(&failure, ErrorKind::Indeterminate, "did not answer within the operation timeout");
        peer.until_open(0).await;
    }
    assert_eq!(ask(&link).await.unwrap(), 7);
}

/// CL-01: a connection that the server ended while it was idle costs nobody an error, whatever the statement.
#[tokio::test]
async fn a_connection_that_died_idle_is_replaced() {
    let peer = Peer::start(|_, stream| async move {
        let mut session = Session(stream);
        session.log_in().await?;
        session.answer(&rows(&[7])).await
    })
    .await;
    let link = link(&config(&peer));
    for count in 1..5 {
        assert_eq!(ask(&link).await.unwrap(), 7);
        peer.until_open(0).await;
        assert_eq!(peer.accepted(), count);
    }
}

/// CX-08, S11: the connection of a call that was dropped is closed, and the next call has another.
#[tokio::test]
async fn a_dropped_call_closes_its_connection() {
    let heard = Arc::new(Notify::new());
    let hearing = Arc::clone(&heard);
    let peer = Peer::start(move |number, stream| {
        let heard = Arc::clone(&hearing);
        async move {
            let mut session = Session(stream);
            if number > 0 {
                return session.serve().await;
            }
            session.log_in().await?;
            session.hear().await?;
            heard.notify_one();
            session.until_closed().await
        }
    })
    .await;
    let link = link(&config(&peer));
    let asking = tokio::spawn({
        let link = link.clone();
        async move { ask(&link).await }
    });
    timeout(PATIENCE, heard.notified()).await.unwrap();
    asking.abort();
    peer.until_open(0).await;
    assert_eq!(ask(&link).await.unwrap(), 7);
}

/// RC-03: what another transaction got in the way of is repeated, on another connection.
#[tokio::test]
async fn the_victim_of_a_deadlock_tries_again() {
    let peer = Peer::start(|number, stream| async move {
        let mut session = Session(stream);
        session.log_in().await?;
        let answer = match number {
            0 => error(1205, 13, "deadlock victim"),
            1 => error(3960, 16, "snapshot"),
            _ => rows(&[7]),
        };
        session.answer(&answer).await?;
        session.until_closed().await
    })
    .await;
    let link = link(&config(&peer));
    assert_eq!(ask(&link).await.unwrap(), 7);
    assert_eq!(peer.accepted(), 3);
    peer.until_open(1).await;
}

/// S8: an error behind rows is an error, one that ends the connection leaves all open, and two sets of rows are none.
#[tokio::test]
async fn what_is_no_answer_is_an_error() {
    let peer = Peer::start(|number, stream| async move {
        let mut session = Session(stream);
        session.log_in().await?;
        let answer = match number {
            0 => [rows(&[7]), error(229, 14, "permission was denied")].concat(),
            1 => error(596, 21, "the session is in the kill state"),
            2 => [rows(&[7]), rows(&[8])].concat(),
            3 => rows_of("count", &[7]),
            4 => [rows_of("count", &[1]), rows(&[7]), rows_of("count", &[2])].concat(),
            _ => vec![0x00],
        };
        session.answer(&answer).await?;
        session.until_closed().await
    })
    .await;
    let link = link(&config(&peer));
    for (kind, word) in [
        (ErrorKind::Denied, "permission was denied"),
        (ErrorKind::Indeterminate, "kill state"),
        (ErrorKind::Unexpected, "2 sets of rows"),
        (ErrorKind::Unexpected, "0 sets of rows"),
    ] {
        assert_kind(&ask(&link).await.unwrap_err(), kind, word);
        peer.until_open(0).await;
    }
    // A trigger's rows are passed over.
    assert_eq!(ask(&link).await.unwrap(), 7);
}

/// A server that says what is no TDS at all.
#[tokio::test]
async fn nonsense_is_an_error() {
    let peer = Peer::start(|number, stream| async move {
        let mut session = Session(stream);
        if number > 0 {
            return session.serve().await;
        }
        session.log_in().await?;
        session.answer(&[0x00]).await?;
        session.until_closed().await
    })
    .await;
    let link = link(&config(&peer));
    assert_kind(&ask(&link).await.unwrap_err(), ErrorKind::Unexpected, "token");
    peer.until_open(0).await;
    assert_eq!(ask(&link).await.unwrap(), 7);
}

/// PE-01: a pool whose connections are all at work says so.
#[tokio::test]
async fn a_pool_at_work_is_no_dead_server() {
    let peer = Peer::start(|_, stream| async move {
        let mut session = Session(stream);
        session.log_in().await?;
        session.answer(&rows(&[7])).await?;
        session.until_closed().await
    })
    .await;
    let link = link(&config(&peer));
    assert_eq!(ask(&link).await.unwrap(), 7);
    let mut at_work = std::pin::pin!(ask(&link));
    assert!(timeout(SHORT, &mut at_work).await.is_err());
    let failure = ask_within(&link, SHORT, true).await.unwrap_err();
    assert_kind(&failure, ErrorKind::PoolTimeout, "all 1 connections were in use");
}
