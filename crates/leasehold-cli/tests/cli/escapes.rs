//! Foreign text on a terminal.

use crate::support::Home;

/// Colours, a title, a C1 introducer, a line break and DEL: what a terminal would act on.
const HOSTILE: &str = "me\x1b[31m\x1b]0;pwned\x07\u{9b}2J\r\nNAME\u{7f}";

fn has_no_control_characters(text: &str) {
    let control = |char: char| char != '\n' && char.is_control();
    assert!(!text.contains(control), "{text:?}");
}

#[test]
fn foreign_text_never_reaches_a_terminal_as_control_characters() {
    let home = Home::new();
    let watching = &mut home.start(["watch", "--every", "20ms"]);
    let put = ["put", "item", "--state", "NEW", "--body", HOSTILE];
    home.run(put).ok();
    home.run(["acquire", "item", "-n", "--ttl", "1h", "--owner", HOSTILE])
        .ok();
    for arguments in [
        &["list"][..],
        &["show", "item"],
        &["run", "item", "-n", "true"],
    ] {
        for json in [&[][..], &["--json"]] {
            let ran = home.run(arguments.iter().chain(json));
            has_no_control_characters(&ran.stdout);
            has_no_control_characters(&ran.stderr);
            let lines = ran.stdout.lines().chain(ran.stderr.lines());
            let with_owner = lines.filter(|line| line.contains("me\\u001b[31m"));
            assert!(with_owner.count() > 0, "{arguments:?}: {ran:?}");
        }
    }
    let listed = home.run(["list", "--json"]).json();
    assert_eq!(listed["locks"][0]["holders"][0]["owner"], HOSTILE);
    assert_eq!(home.show("item")["body"], HOSTILE);
    has_no_control_characters(&watching.expect("\\u001b[31m"));
}
