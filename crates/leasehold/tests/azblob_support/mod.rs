//! Direct access to Azurite, with signed URLs and plain HTTP.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use azure_core::hmac::hmac_sha256;
use leasehold::store::{Query, Store};
use leasehold_testbed::shared;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

pub(crate) const ACCOUNT: &str = "devstoreaccount1";

/// An option for Azurite, which may take several seconds for an answer on a busy machine.
pub(crate) const LONG_TIMEOUT: &str = "&timeout=60s";

/// Returns the store URL of a container that no other test uses, and the port of its server.
pub(crate) async fn container_url(container: &str) -> (String, u16) {
    let server = shared("azblob").await.expect("installed");
    let url = server.url().replace("/leases?", &format!("/{container}?"));
    (url + LONG_TIMEOUT, server.port())
}

pub(crate) async fn names(store: &dyn Store, query: &Query) -> Vec<String> {
    let page = store.find(query).await.expect("it answers").value;
    let names = page
        .records
        .iter()
        .map(|(name, _)| name.as_str().to_owned());
    names.collect()
}

/// Returns the key in a store URL.
pub(crate) fn key_of(url: &str) -> String {
    let (_, key) = url.split_once("key=").expect("it has one");
    let (key, _) = key.split_once('&').unwrap_or((key, ""));
    percent_decode_str(key)
        .decode_utf8()
        .expect("UTF-8")
        .into_owned()
}

/// Returns the same URL with another credential.
pub(crate) fn with_credential(url: &str, credential: &str) -> String {
    let (container_url, _) = url.split_once("&key=").expect("it has one");
    format!("{container_url}&{credential}{LONG_TIMEOUT}")
}

/// Returns a shared access signature with these rights to a container.
pub(crate) fn sas(url: &str, container: &str, rights: &str) -> String {
    let (expiry, version) = ("2099-01-01T00:00:00Z", "2020-12-06");
    let container_url = format!("/blob/{ACCOUNT}/{container}");
    let signed =
        [rights, "", expiry, &container_url, "", "", "", version, "c"].join("\n") + &"\n".repeat(7);
    let signature = hmac_sha256(&signed, &key_of(url).into()).expect("a valid key");
    let signature = utf8_percent_encode(&signature, NON_ALPHANUMERIC);
    format!("sv={version}&sr=c&sp={rights}&se={expiry}&sig={signature}")
}

/// Returns a signature as an option of a store URL.
pub(crate) fn sas_option(sas: &str) -> String {
    format!("sas={}", utf8_percent_encode(sas, NON_ALPHANUMERIC))
}

/// Returns the server's answer, including headers. `path` is relative to the account.
pub(crate) fn http(port: u16, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let length = body.len();
    write!(
        connection,
        "{method} /{ACCOUNT}/{path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{headers}content-length: \
         {length}\r\n\r\n{body}"
    )
    .expect("it takes a request");
    let mut answer = String::new();
    connection
        .read_to_string(&mut answer)
        .expect("it answers in UTF-8");
    answer
}
