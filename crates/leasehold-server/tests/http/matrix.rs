//! Every described operation, by every kind of caller: which callers are admitted, and that the others learn nothing.
//!
//! The requests are built from `/openapi.json`, so new routes are included. The description has the scopes that the service
//! checks; these tests compare the two.

use std::collections::BTreeSet;

use leasehold_server::access::{AccessFile, Scope, Token};
use serde_json::{Value, json};

use crate::described::{Operation, Request, operations};
use crate::guarded::Guarded;
use crate::subscriber::Subscriber;

/// Operations without access control. Add an operation here if it is meant to be open.
const OPEN: [&str; 9] = [
    "alive",
    "dashboard",
    "docs",
    "docsScript",
    "docsStyle",
    "logIn",
    "logOut",
    "openapi",
    "ready",
];

const RIGHTS: [&str; 4] = ["read", "acquire", "break", "admin"];
/// The prefix of the names in requests…
const MINE: &str = "jobs-";
/// …and the prefix of names that other callers use.
const OTHERS: &str = "other/";

struct Caller {
    about: String,
    /// The header line with its credential.
    header: String,
    /// Its right and prefix. `None` if it is unknown.
    scope: Option<(&'static str, &'static str)>,
}

impl Caller {
    fn unknown(about: &str, header: String) -> Self {
        Self {
            about: about.to_owned(),
            header,
            scope: None,
        }
    }

    /// Returns whether it has one of these scopes.
    fn has(&self, scopes: &[String], name: &str) -> bool {
        let Some((right, prefix)) = self.scope else {
            return false;
        };
        let mut parts = scopes.iter().map(|scope| scope.split_once(':').unwrap());
        scopes.is_empty()
            || parts.any(|(wanted, on)| {
                let on = on.replace("{name}", name).replace("{prefix}", name);
                (right == wanted || right == "admin") && on.starts_with(prefix)
            })
    }

    /// Returns prefixes that no answer to it may contain.
    fn hidden(&self) -> &'static [&'static str] {
        match self.scope {
            Some((_, "")) => &[],
            Some((_, MINE)) => &[OTHERS],
            Some((_, OTHERS)) => &[MINE],
            _ => &[MINE, OTHERS],
        }
    }
}

/// Starts a service with leases under both prefixes, and creates all callers.
async fn set_up() -> (Guarded, String, Vec<Caller>) {
    let guarded = Guarded::start().await;
    let create = |scopes: &[&str]| {
        let scopes: Vec<Scope> = scopes.iter().map(|scope| scope.parse().unwrap()).collect();
        let created = AccessFile::create_token(&guarded.file(), "principal", &scopes, None);
        created.unwrap().0.expose().to_owned()
    };
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let known = create(&[]);
    let mistyped = format!("{}x", &known[..known.len() - 1]);
    let other = Token::generate().unwrap();
    let mut callers = vec![
        Caller::unknown("no token", String::new()),
        Caller::unknown("a malformed token", bearer("lh_wrong")),
        Caller::unknown("a token of another service", bearer(other.expose())),
        Caller::unknown("a mistyped token", bearer(&mistyped)),
        Caller::unknown(
            "a cookie",
            format!("Cookie: leasehold-session={mistyped}\r\n"),
        ),
        Caller {
            about: "a token without scopes".into(),
            header: bearer(&known),
            scope: Some(("nothing", "none")),
        },
    ];
    for prefix in ["", MINE, OTHERS] {
        for right in RIGHTS {
            let about = format!("{right}:{prefix}");
            let header = bearer(&create(&[&about]));
            let scope = Some((right, prefix));
            callers.push(Caller {
                about,
                header,
                scope,
            });
        }
    }
    // Once this token is known, so are all tokens before it.
    let root = guarded.token("root", &["admin:"]).await;
    for prefix in [MINE, OTHERS] {
        let hold =
            format!("/locks?name={prefix}there&nonce={prefix}nonce&owner={prefix}owner&ttl=1h");
        let fence = guarded.post(&hold, &root).await.ok().fence();
        let update = format!("/locks/{fence}?name={prefix}there&state={prefix}state");
        let body = format!("{prefix}body");
        let update = guarded.ask("POST", &update, &root, body.as_bytes());
        update.await.ok();
        let gate = format!("/gates?name={prefix}there&every=1h&owner={prefix}owner");
        guarded.post(&gate, &root).await.ok();
        let item = format!("/items?name={prefix}item&state=REQUESTED");
        guarded.ask("PUT", &item, &root, b"").await.ok();
    }
    (guarded, root, callers)
}

async fn described_operations(guarded: &Guarded) -> Vec<Operation> {
    operations(&guarded.ask("GET", "/openapi.json", "", b"").await.ok().json)
}

/// Returns everything that is stored, without the remaining times.
async fn everything(guarded: &Guarded, root: &str) -> Value {
    let mut all = json!([]);
    for kind in ["locks", "gates"] {
        let target = format!("/{kind}?limit=1000");
        let mut page = guarded.ask("GET", &target, root, b"").await.ok().json;
        for lock in page[kind].as_array_mut().unwrap() {
            for holder in lock["holders"].as_array_mut().unwrap() {
                holder.as_object_mut().unwrap().remove("left");
            }
        }
        all.as_array_mut().unwrap().push(page);
    }
    all
}

/// Sends a request as a caller, checks that the answer contains nothing hidden, and returns its status and body.
async fn send_as(guarded: &Guarded, caller: &Caller, request: &Request) -> (u16, String) {
    let Request {
        method,
        target,
        body,
        streams,
    } = request;
    let about = format!("{}: {method} {target} {body}", caller.about);
    let answer = match streams {
        true => guarded.server.head_of(method, target, &caller.header).await,
        false => {
            let body = body.as_bytes();
            let asking = guarded
                .server
                .send_with(method, target, &caller.header, body);
            asking.await
        }
    };
    let text = format!("{}\n{}", answer.head, answer.body);
    for hidden in caller.hidden() {
        assert!(!text.contains(hidden), "{about}: {text}");
    }
    // Each of several leases has its own answer.
    let of_one = answer.json["leases"][0]["problem"]["status"].as_u64();
    let status = of_one.map_or(answer.status, |status| status as u16);
    (status, answer.body)
}

#[tokio::test]
async fn callers_without_the_right_are_refused_learn_nothing_and_change_nothing() {
    let (guarded, root, callers) = set_up().await;
    let before = everything(&guarded, &root).await;
    let mut refused = 0;
    for operation in described_operations(&guarded).await {
        let Some(scopes) = &operation.scopes else {
            continue;
        };
        for caller in &callers {
            let (there, absent) = (
                operation.requests(scopes, "jobs-there"),
                operation.requests(scopes, "jobs-absent"),
            );
            for ((scopes, there), (_, absent)) in there.iter().zip(&absent) {
                if caller.has(scopes, "jobs-there") {
                    continue;
                }
                let about = format!("{}: {there:?}", caller.about);
                let (status, body) = send_as(&guarded, caller, there).await;
                let expected = if caller.scope.is_none() { 401 } else { 403 };
                assert_eq!(status, expected, "{about}: {body}");
                assert!(!body.contains(MINE), "{about}: {body}");
                let same = send_as(&guarded, caller, absent).await;
                assert_eq!(
                    (status, body),
                    same,
                    "{about}: the answer depends on what exists"
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 1_000, "{refused}");
    assert_eq!(everything(&guarded, &root).await, before);
}

#[tokio::test]
async fn callers_with_the_right_are_admitted() {
    let (guarded, _, callers) = set_up().await;
    let mut allowed = BTreeSet::new();
    for operation in described_operations(&guarded).await {
        let Some(scopes) = &operation.scopes else {
            continue;
        };
        for caller in &callers {
            for name in ["jobs-there", "jobs-absent"] {
                for (scopes, request) in operation.requests(scopes, name) {
                    if !caller.has(&scopes, name) {
                        continue;
                    }
                    let (status, body) = send_as(&guarded, caller, &request).await;
                    let about = format!("{}: {request:?}: {body}", caller.about);
                    assert!(matches!(status, 200 | 404 | 409 | 429), "{status} {about}");
                    if scopes.iter().any(|scope| scope.ends_with(':')) {
                        // Answers about all names together contain no name.
                        assert!(!body.contains(MINE) && !body.contains(OTHERS), "{about}");
                    }
                    allowed.extend(scopes);
                }
            }
        }
    }
    let of_names = RIGHTS.map(|right| format!("{right}:{{name}}"));
    assert!(
        of_names.iter().all(|scope| allowed.contains(scope)),
        "{allowed:?}"
    );
}

#[tokio::test]
async fn answers_about_many_names_contain_exactly_the_readable_ones() {
    let (guarded, root, callers) = set_up().await;
    for operation in described_operations(&guarded).await {
        let Some([scope]) = operation.scopes.as_deref() else {
            continue;
        };
        let Some((right, "{prefix}")) = scope.split_once(':') else {
            continue;
        };
        let request = operation.request_without_prefix();
        for caller in &callers {
            let Some((has, prefix)) = caller.scope else {
                continue;
            };
            let about = format!("{}: {request:?}", caller.about);
            let may = has == right || has == "admin";
            if request.streams && may && request.method == "GET" {
                receives_only(&guarded, &root, caller, prefix).await;
                continue;
            }
            let (status, body) = send_as(&guarded, caller, &request).await;
            assert_eq!(status, if may { 200 } else { 403 }, "{about}: {body}");
            if may && request.method == "GET" {
                assert!(body.contains(&format!("{prefix}there")), "{about}: {body}");
            }
        }
    }
}

/// Changes names of both prefixes, and checks that a subscriber receives the events of its prefix only.
async fn receives_only(guarded: &Guarded, root: &str, caller: &Caller, prefix: &str) {
    let mut subscriber = Subscriber::with(&guarded.server, "", &caller.header).await;
    let changes = [MINE, OTHERS, MINE, OTHERS].into_iter().enumerate();
    for (turn, changed) in changes.clone() {
        let item = format!("/items?name={changed}new&state=CHANGED");
        let body = turn.to_string();
        let put = guarded.ask("PUT", &item, root, body.as_bytes());
        put.await.ok();
    }
    for (_, changed) in changes.filter(|(_, changed)| changed.starts_with(prefix)) {
        subscriber.expect("updated", &format!("{changed}new")).await;
    }
}

#[tokio::test]
async fn open_operations_are_listed_and_answer_all_callers_equally() {
    let (guarded, _, callers) = set_up().await;
    let mut open = BTreeSet::new();
    for operation in described_operations(&guarded).await {
        if operation.scopes.is_some() {
            continue;
        }
        let (_, request) = operation.requests(&[], "jobs-there").remove(0);
        let without_token = send_as(&guarded, &callers[0], &request).await;
        // A login has its token in its body.
        let expected = if request.body.is_empty() { 200 } else { 401 };
        assert_eq!(without_token.0, expected, "{request:?}");
        for caller in &callers {
            let answer = send_as(&guarded, caller, &request).await;
            assert_eq!(answer, without_token, "{}: {request:?}", caller.about);
        }
        open.insert(operation.id);
    }
    assert_eq!(open, OPEN.map(str::to_owned).into());
}
