//! `put`, `remove` and `claim`: work items.

use crate::support::Home;

fn put(home: &Home, name: &str, body: &str) {
    let put = ["put", "--state", "NEW", "--body", body, "--", name];
    home.run(put).ok();
}

/// Returns the names of the claimed items, one JSON object per line.
fn names(lines: &str) -> Vec<String> {
    let items = lines.lines().map(|line| {
        let item: serde_json::Value = serde_json::from_str(line).unwrap();
        item["name"].as_str().unwrap().to_owned()
    });
    items.collect()
}

#[test]
fn items_are_claimed_oldest_first_and_never_twice() {
    let home = Home::new();
    for name in ["c", "a", "b"] {
        put(&home, name, &format!("body of {name}"));
    }
    let two = home.run(["claim", "NEW", "--limit", "2"]).ok().stdout;
    assert_eq!(names(&two), ["c", "a"]);
    let rest = home
        .run(["claim", "NEW", "--json", "--ttl", "5m", "--owner", "me"])
        .json();
    let item = &rest["items"][0];
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&item["name"], &item["body"], &item["state"], &item["ttl"]),
        (
            &"b".into(),
            &"body of b".into(),
            &"NEW".into(),
            &300_000.into()
        )
    );
    assert!(item["expireTime"].is_string(), "{item}");
    assert_eq!(home.show("b")["holders"][0]["owner"], "me");
    home.run(["claim", "NEW"])
        .failed(75, "no item to claim in state NEW");
    home.run(["claim", "NEW", "-E", "3"]).failed(3, "no item");
    let none = home.run(["claim", "NEW", "--json", "-E", "0"]).json();
    assert_eq!(none["items"].as_array().unwrap().len(), 0);

    let fence = item["fence"].to_string();
    home.run(["update", "b", &fence, "--state", "DONE", "--release"])
        .ok();
    let shown = home.show("b");
    assert_eq!(
        (&shown["state"], &shown["body"], &shown["held"]),
        (&"DONE".into(), &"body of b".into(), &false.into())
    );
    home.run(["update", "b", &fence, "late"])
        .failed(76, "fence");
}

#[test]
fn item_put_again_keeps_its_body_unless_a_new_one_is_given() {
    let home = Home::new();
    put(&home, "order", "3 apples");
    let put_again = |rest: &[&str]| {
        let again = ["put", "order", "--state", "REQUESTED"];
        home.run(again.iter().chain(rest)).ok();
        let shown = home.show("order");
        assert_eq!(shown["state"], "REQUESTED");
        shown["body"].as_str().unwrap().to_owned()
    };
    assert_eq!(put_again(&[]), "3 apples");
    assert_eq!(put_again(&["--body", "4 apples"]), "4 apples");
    assert_eq!(put_again(&["--body", ""]), "");
}

#[test]
fn claim_respects_its_prefix_and_waits_for_items() {
    let home = Home::new();
    put(&home, "other/1", "");
    home.run(["claim", "NEW", "--prefix", "orders/", "--wait", "10ms"])
        .failed(75, "no item");
    let mut waiting = home.start(["claim", "NEW", "--prefix", "orders/", "--wait", "1h"]);
    put(&home, "orders/1", "");
    let line = waiting.expect("orders/1");
    assert_eq!(names(&line), ["orders/1"]);
    waiting.ends_with(0);
    assert!(!home.is_held("other/1"));
}

#[test]
fn claimed_item_is_neither_replaced_nor_removed() {
    let home = Home::new();
    put(&home, "order", "as it was");
    let claimed = home.run(["claim", "NEW", "--json"]).json();
    let fence = claimed["items"][0]["fence"].to_string();
    home.run(["put", "order", "--state", "NEW", "--body", "other"])
        .failed(75, "order is held by");
    home.run(["remove", "order"]).failed(75, "order is held by");
    assert_eq!(home.show("order")["body"], "as it was");

    home.run(["release", "order", &fence]).ok();
    home.run(["remove", "order"]).ok();
    let shown = home.show("order");
    assert_eq!((&shown["state"], &shown["body"]), (&().into(), &"".into()));
    assert_eq!(
        home.run(["remove", "order", "--json"]).json()["removed"],
        true
    );
    home.run(["claim", "NEW"]).failed(75, "no item");
}

#[test]
fn repeated_put_does_not_reset_a_finished_item() {
    let home = Home::new();
    let put = ["put", "order", "--state", "NEW", "--nonce", "mail-1"];
    home.run(put).ok();
    let claimed = home.run(["claim", "NEW", "--json"]).json();
    let fence = claimed["items"][0]["fence"].to_string();
    home.run(["update", "order", &fence, "--state", "DONE", "--release"])
        .ok();
    home.run(put).ok();
    assert_eq!(home.show("order")["state"], "DONE");
    home.run(["put", "order", "--state", "NEW"]).ok();
    assert_eq!(home.show("order")["state"], "NEW");
}

#[test]
fn body_is_read_from_an_argument_a_file_or_a_pipe() {
    let home = Home::new();
    std::fs::write(home.file("body"), "from a file\n").unwrap();
    let put = ["put", "order", "--state", "NEW"];
    home.run(put.iter().chain(&["--body-file", "body"])).ok();
    assert_eq!(home.show("order")["body"], "from a file\n");
    for pipe in [["--body", "-"], ["--body-file", "-"]] {
        let mut piped = home.start(put.iter().chain(&pipe));
        piped.write("from a pipe\n");
        piped.ends_with(0);
        assert_eq!(home.show("order")["body"], "from a pipe\n");
        home.run(put.iter().chain(&["--body", "-1"])).ok();
        assert_eq!(home.show("order")["body"], "-1");
    }
    std::fs::write(home.file("body"), vec![b'x'; 70 * 1024]).unwrap();
    home.run(put.iter().chain(&["--body-file", "body"]))
        .failed(2, "65536 bytes");
    home.run(put.iter().chain(&["--body-file", "missing"]))
        .failed(2, "cannot read the body from missing: ");
    assert_eq!(home.show("order")["body"], "-1");
}

#[test]
fn invalid_input_is_refused_and_changes_nothing() {
    let home = Home::new();
    let long = "s".repeat(65);
    for (arguments, words) in [
        (&["put", "order"][..], "--state"),
        (&["put", "order", "--state", ""], "state"),
        (&["put", "order", "--state", &long], "65 bytes"),
        (&["put", "", "--state", "NEW"], "the name is empty"),
        (
            &[
                "put",
                "order",
                "--state",
                "NEW",
                "--body",
                "x",
                "--body-file",
                "y",
            ],
            "cannot be used",
        ),
        (&["remove"], "required"),
        (&["claim"], "required"),
        (&["claim", ""], "state"),
        (&["claim", &long], "65 bytes"),
        (&["claim", "NEW", "--limit", "0"], "from 1 to 1000"),
        (&["claim", "NEW", "--limit", "1001"], "from 1 to 1000"),
        (&["claim", "NEW", "--limit", "-1"], "-1"),
        (&["claim", "NEW", "--ttl", "0s"], "ttl"),
        (&["claim", "NEW", "--wait", "-1s"], "invalid duration"),
    ] {
        home.run(arguments).failed(2, words);
    }
    let listed = home.run(["list", "--json"]).json();
    assert_eq!(listed["locks"].as_array().unwrap().len(), 0);
}
