//! Certificates, on both sides.

use futures_util::future::join;
use lockwright::internals::backend::redis::Setup;
use lockwright::internals::config::Secret;
use lockwright::internals::error::ConnectError;

use super::*;
use crate::support::backend::{Client, setup};
use crate::support::server::{Server, free_port};
use crate::support::time::soon;
use crate::support::tls::{Authority, server_arguments};

fn start(authority: &Authority) -> (Server, u16) {
    let port = free_port();
    let arguments = server_arguments(authority, port);
    (Server::start_with(&arguments.iter().map(String::as_str).collect::<Vec<_>>()), port)
}

fn trusting(authority: &Authority) -> Tls {
    Tls { authorities: Some(authority.text("ca.pem")), identity: None }
}

fn known_to(authority: &Authority) -> Option<(String, Secret)> {
    Some((authority.text("client.pem"), Secret::new(authority.text("client.key"))))
}

async fn dial(url: &str, tls: &Tls) -> Result<Wire, NoWire> {
    let dialer = Dialer::new(&Address::parse(url).unwrap(), tls).unwrap();
    let wire = soon("an answer", dialer.connect(LONG)).await?;
    // A server that wants a certificate says so after the handshake.
    match say(&wire, &["PING"]).await {
        Ok(_) => Ok(wire),
        Err(failure) => Err(NoWire::Unreachable(format!("{failure:?}"))),
    }
}

#[tokio::test]
async fn both_sides_show_certificates() {
    let authority = Authority::new();
    let (server, port) = start(&authority);
    let tls = Tls { identity: known_to(&authority), ..trusting(&authority) };
    for url in [format!("rediss://127.0.0.1:{port}"), format!("valkeys://localhost:{port}/1")] {
        dial(&url, &tls).await.unwrap_or_else(|reason| panic!("{url}: {reason:?}"));
    }
    drop(server);
}

#[tokio::test]
async fn who_is_not_trusted_is_told() {
    let authority = Authority::new();
    let (_server, port) = start(&authority);
    let url = format!("rediss://127.0.0.1:{port}");
    let stranger = Tls { identity: known_to(&authority), ..trusting(&Authority::new()) };
    let system = Tls { identity: known_to(&authority), authorities: None };
    for tls in [stranger, system] {
        let outcome = dial(&url, &tls).await;
        assert!(matches!(outcome, Err(NoWire::Untrusted(_))), "{outcome:?}");
    }
    let nobody = dial(&url, &trusting(&authority)).await;
    assert!(nobody.is_err(), "the server wants a certificate");
    let named = dial(&format!("rediss://127.0.0.2:{port}"), &trusting(&authority)).await;
    assert!(named.is_err(), "no such name in the certificate");
}

#[tokio::test]
async fn plain_text_and_tls_do_not_hang_on_each_other() {
    let authority = Authority::new();
    let (server, port) = start(&authority);
    // A plain server takes the greeting for the beginning of a line and waits for its end.
    let (plain, to_plain) = join(
        dial(&format!("redis://127.0.0.1:{port}"), &Tls::default()),
        dial(&format!("rediss://127.0.0.1:{}", server.port()), &trusting(&authority)),
    )
    .await;
    assert!(plain.is_err() && to_plain.is_err(), "{plain:?} {to_plain:?}");
}

#[test]
fn certificates_that_are_none_are_found_before_the_first_attempt() {
    let address = Address::parse("rediss://h").unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for tls in [
        Tls { authorities: Some("none".into()), identity: None },
        Tls { authorities: Some(pem.into()), identity: None },
        Tls { authorities: None, identity: Some((pem.into(), Secret::new("sesame"))) },
    ] {
        let outcome = Dialer::new(&address, &tls).map(drop);
        assert!(matches!(&outcome, Err(ConnectError::InvalidSetting { .. })), "{outcome:?}");
        assert!(!format!("{outcome:?}").contains("sesame"));
    }
}

#[tokio::test]
async fn a_client_is_told_whom_it_does_not_trust() {
    let authority = Authority::new();
    let (server, port) = start(&authority);
    let with = |tls: Tls| Setup { tls, ..setup(format!("rediss://127.0.0.1:{port}")) };
    let stranger = Tls { identity: known_to(&authority), ..trusting(&Authority::new()) };
    let Err(ConnectError::Unauthorized { missing }) = Client::try_connect(with(stranger)).await.map(drop)
    else {
        panic!("it is trusted")
    };
    assert!(missing.contains("InvalidCertificate"), "{missing}");
    let client = Client::connect(with(Tls { identity: known_to(&authority), ..trusting(&authority) })).await;
    assert_eq!(client.echo("safe").await.as_deref(), Ok("safe"));
    drop(server);
}
