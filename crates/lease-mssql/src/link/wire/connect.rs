//! Connections that do not come about, or not in time.

use super::*;

/// CL-04, S12: who accepts and stays mute does so for no longer than the call lasts, and keeps nobody from trying again.
#[tokio::test]
async fn a_mute_server_is_given_up() {
    let peer = Peer::start(|number, stream| async move {
        let mut session = Session(stream);
        if number == 0 { session.until_closed().await } else { session.serve().await }
    })
    .await;
    let link = link(&config(&peer).operation_timeout(SHORT));
    let failure = ask_within(&link, SHORT, true).await.unwrap_err();
    assert_kind(&failure, ErrorKind::Unavailable, "took the connection and said nothing");
    assert!(failure.into_error(Operation::Acquire).proves_nothing_happened());
    assert_eq!(ask(&link).await.unwrap(), 7);
    assert_eq!(peer.accepted(), 2);
    drop(link);
    peer.until_open(0).await;
}

/// CL-04: without a call that waits, an attempt ends by its own limit.
#[tokio::test]
async fn an_attempt_ends_by_its_own_limit() {
    let peer = Peer::start(|_, stream| async move { Session(stream).until_closed().await }).await;
    let link = link(&config(&peer).connect_timeout(SHORT));
    let failure = ask(&link).await.unwrap_err();
    assert_kind(&failure, ErrorKind::Unavailable, "within connect_timeout, 300ms");
    peer.until_open(0).await;
}

/// CL-04
#[tokio::test]
async fn a_reset_in_the_handshake_is_told_at_once() {
    let peer = Peer::start(|number, stream| async move {
        if number > 0 {
            return Session(stream).serve().await;
        }
        let mut session = Session(stream);
        session.hear().await?;
        session.0.set_zero_linger()
    })
    .await;
    let link = link(&config(&peer));
    assert_kind(&ask(&link).await.unwrap_err(), ErrorKind::Unavailable, "did not end the login");
    assert_eq!(ask(&link).await.unwrap(), 7);
}

/// CL-04: nobody listens.
#[tokio::test]
async fn a_refused_connection_is_told_at_once() {
    let peer = Peer::start(|_, stream| async move { Session(stream).serve().await }).await;
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let failure = ask(&link(&config(&peer).port(gone.port()))).await.unwrap_err();
    assert_kind(&failure, ErrorKind::Unavailable, "cannot be reached");
}

/// S8: a login that is refused has its kind and the server's words, and is not kept.
#[tokio::test]
async fn a_refused_login_says_why() {
    let peer = Peer::start(|number, stream| async move {
        let mut session = Session(stream);
        let refusal = match number {
            0 => error(18456, 14, "Login failed for user 'app'."),
            1 => error(4060, 11, "Cannot open database \"none\"."),
            2 => error(40613, 17, "Database is not currently available."),
            _ => return session.serve().await,
        };
        session.greet().await?;
        session.hear().await?;
        session.say(&[refusal, done()].concat()).await?;
        session.until_closed().await
    })
    .await;
    let link = link(&config(&peer));
    assert_kind(&ask(&link).await.unwrap_err(), ErrorKind::Denied, "Login failed for user 'app'.");
    assert_kind(&ask(&link).await.unwrap_err(), ErrorKind::InvalidConfig, "Cannot open database");
    assert_kind(&ask(&link).await.unwrap_err(), ErrorKind::Unavailable, "40613");
    peer.until_open(0).await;
    assert_eq!(ask(&link).await.unwrap(), 7);
}

/// A server without TLS is not spoken to in the clear unless that was asked for.
#[tokio::test]
async fn a_server_without_tls_is_refused() {
    let peer = Peer::start(|_, stream| async move { Session(stream).serve().await }).await;
    let failure = ask(&link(&config(&peer).encrypt(Encrypt::Mandatory))).await.unwrap_err();
    assert_kind(&failure, ErrorKind::InvalidConfig, "encrypt=never");
    peer.until_open(0).await;
}

/// CL-11: one redirect is followed.
#[tokio::test]
async fn a_redirect_is_followed() {
    let there = Peer::start(|_, stream| async move { Session(stream).serve().await }).await;
    let port = there.address.port();
    let here = Peer::start(move |_, stream| redirect(stream, port)).await;
    assert_eq!(ask(&link(&config(&here))).await.unwrap(), 7);
    here.until_open(0).await;
    assert_eq!((here.accepted(), there.accepted()), (1, 1));
}

/// CL-11: and a loop is cut.
#[tokio::test]
async fn a_loop_of_redirects_is_cut() {
    let peer = Peer::start(|_, stream| {
        let port = stream.local_addr().unwrap().port();
        redirect(stream, port)
    })
    .await;
    let failure = ask(&link(&config(&peer))).await.unwrap_err();
    assert_kind(&failure, ErrorKind::Unavailable, "redirects again");
    peer.until_open(0).await;
    assert_eq!(peer.accepted(), 2);
}

async fn redirect(stream: TcpStream, port: u16) -> io::Result<()> {
    let mut session = Session(stream);
    session.greet().await?;
    session.hear().await?;
    session.say(&[routing(port), done()].concat()).await?;
    session.until_closed().await
}

/// CL-03: a login that takes longer than a call serves a later one: opening connections does not begin anew for ever.
#[tokio::test]
async fn a_slow_login_serves_a_later_call() {
    let peer = Peer::start(|_, stream| async move {
        let mut session = Session(stream);
        session.greet().await?;
        session.hear().await?;
        sleep(SHORT * 5).await;
        session.say(&done()).await?;
        session.hear().await?;
        session.say(&done()).await?;
        loop {
            session.answer(&rows(&[7])).await?;
        }
    })
    .await;
    let link = link(&config(&peer).operation_timeout(SHORT));
    let begun = LocalInstant::now();
    let mut failures = 0;
    while let Err(failure) = ask_within(&link, SHORT, false).await {
        assert_kind(&failure, ErrorKind::Unavailable, "did not end the login");
        failures += 1;
        assert!(LocalInstant::now().saturating_duration_since(begun) < PATIENCE, "after {failures} failures");
    }
    assert!(failures >= 3, "each call was to be shorter than a login");
    // One a call at the most, and none once one has come about.
    assert!(peer.accepted() <= failures + 1);
    assert_eq!(ask_within(&link, SHORT, false).await.unwrap(), 7);
    drop(link);
    peer.until_open(0).await;
}

/// The same for calls that are dropped before their time: they share one attempt.
#[tokio::test]
async fn dropped_calls_share_an_attempt() {
    let peer = Peer::start(|_, stream| async move {
        sleep(SHORT).await;
        Session(stream).serve().await
    })
    .await;
    let link = link(&config(&peer));
    let mut dropped = 0;
    while timeout(SHORT / 10, ask(&link)).await.is_err() {
        dropped += 1;
        assert!(dropped < 1000);
    }
    assert!(dropped > 1);
    assert_eq!(peer.accepted(), 1);
}
