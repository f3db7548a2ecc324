//! `list`: pages, order, cursors and columns.

use crate::service::Service;
use crate::support::{Home, Ran};

/// Returns the names of a list as JSON.
fn names(list: &serde_json::Value) -> Vec<&str> {
    let locks = list["locks"].as_array().unwrap().iter();
    locks.map(|lock| lock["name"].as_str().unwrap()).collect()
}

#[test]
fn list_fetches_all_pages_and_aligns_columns() {
    let home = Home::new();
    let script = r#"i=0; while [ $i -lt 105 ]; do printf 'n-%03d\n' $i; i=$((i+1)); done"#;
    let names = home
        .program("sh")
        .args(["-c", script])
        .output()
        .unwrap()
        .stdout;
    let names = String::from_utf8(names).unwrap();
    let mut service = Service::start(&home);
    for name in names.lines() {
        service.post(&format!("/locks/{name}?nonce=n&ttl=1h"));
    }
    drop(service);
    let all = home.run(["list", "--json"]).json();
    let listed: Vec<_> = all["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| lock["name"].as_str().unwrap())
        .collect();
    assert_eq!(listed, names.lines().collect::<Vec<_>>());
    let limited = home
        .run(["list", "--json", "--prefix", "n-01", "--limit", "3"])
        .json();
    assert_eq!(limited["locks"].as_array().unwrap().len(), 3);

    let text = home.run(["list", "--prefix", "n-00"]).ok().stdout;
    let column = text.lines().next().unwrap().find("HELD BY").unwrap();
    assert_eq!(text.lines().count(), 11);
    assert!(
        text.lines()
            .all(|line| line.as_bytes()[column - 1] == b' ' && line.as_bytes()[column] != b' ')
    );
    let none = home.run(["list", "--free"]).ok();
    assert_eq!((&*none.stdout, none.stderr.contains("nothing")), ("", true));
}

#[test]
fn list_has_held_leases_first_and_is_sorted_on_request() {
    let home = Home::new();
    for (name, owner, ttl) in [
        ("m", "bob", "3h"),
        ("f", "eve", "1m"),
        ("a", "zed", "2h"),
        ("z", "amy", "1h"),
    ] {
        let acquire = ["acquire", name, "--owner", owner, "--ttl", ttl, "--json"];
        let fence = home.run(acquire).json()["fence"].to_string();
        if owner == "eve" {
            home.run(["release", name, &fence]).ok();
        }
    }
    for (options, expected) in [
        (&[][..], "a m z f"),
        (&["--sort", "name"], "a f m z"),
        (&["--sort", "name", "--reverse"], "z m f a"),
        (&["--reverse"], "z m f a"),
        (&["--sort", "since"], "m a z f"),
        (&["--sort", "since", "--reverse"], "z a m f"),
        (&["--sort", "since", "--reverse", "--limit", "2"], "z a"),
        (&["--sort", "owner"], "z m a f"),
        (&["--sort", "owner", "--held"], "z m a"),
        (&["--sort", "expires"], "z a m f"),
        (&["--sort", "expires", "--limit", "1"], "z"),
        // The first three by name; free ones are put last.
        (&["--limit", "3"], "a m f"),
    ] {
        let text = home.run(["list"].iter().chain(options)).ok().stdout;
        let listed: Vec<_> = text.lines().skip(1).map(|line| &line[..1]).collect();
        assert_eq!(listed.join(" "), expected, "{options:?}: {text}");
        let json = home.run(["list", "--json"].iter().chain(options)).json();
        if options.contains(&"--sort") || options.contains(&"--reverse") {
            assert_eq!(names(&json).join(" "), expected, "{options:?}");
            assert_eq!(json["cursor"], serde_json::Value::Null, "{options:?}");
        }
    }
    let json = home.run(["list", "--json"]).json();
    assert_eq!(names(&json), ["a", "f", "m", "z"]);
    let text = home.run(["list", "--prefix", "m"]).ok().stdout;
    let row = text.lines().last().unwrap();
    assert!(
        row.contains(" ago  in 2h 59m  -") && row.starts_with("m     bob      1"),
        "{text}"
    );
}

#[test]
fn items_are_listed_oldest_first_and_sorted_on_request() {
    let home = Home::new();
    for name in ["c", "a", "b"] {
        home.run(["put", name, "--state", "NEW"]).ok();
    }
    for (options, expected) in [
        (&[][..], ["c", "a", "b"]),
        (&["--reverse"], ["b", "a", "c"]),
        (&["--sort", "name"], ["a", "b", "c"]),
    ] {
        let list = ["list", "--state", "NEW", "--json"];
        let json = home.run(list.iter().chain(options)).json();
        assert_eq!(names(&json), expected, "{options:?}");
    }
}

#[test]
fn list_that_a_limit_cut_continues_at_its_cursor() {
    let home = Home::new();
    let mut all = ["-x", "a b", "c", "d", "e"];
    for name in all {
        home.run(["acquire", "--", name]).ok();
    }
    all.sort_unstable();
    let list = ["list", "--limit", "2", "--json"];
    let mut page = home.run(list).json();
    let mut listed = Vec::new();
    loop {
        listed.extend(names(&page).into_iter().map(str::to_owned));
        let Some(cursor) = page["cursor"].as_str() else {
            break;
        };
        page = home.run(list.iter().chain(&["--cursor", cursor])).json();
    }
    assert_eq!(listed, all);
    assert!(home.run(["list", "--json"]).json()["cursor"].is_null());

    // The message for people is what the next call takes.
    let text = home.run(["list", "--limit", "2"]).ok();
    let (_, rest) = text.stderr.split_once("continue with `").unwrap();
    let (options, _) = rest.split_once('`').unwrap();
    let line = format!("\"$LEASEHOLD\" list {options} --json");
    let shell = home.program("sh").args(["-c", &line]).output().unwrap();
    let rest = Ran::from(shell).json();
    assert_eq!(names(&rest), all[2..]);
    home.run(["list", "--cursor", "c", "--sort", "since"])
        .failed(2, "cannot continue at a cursor in this order");
}
