//! Checks that docs/guides/fence-your-writes.md contains the library's statements and the examples of its documentation.

use leasehold::core::{Fence, Name};
use leasehold::fence;

const PAGE: &str = include_str!("../../../docs/guides/fence-your-writes.md");

#[test]
fn fencing_page_contains_the_statements() {
    let (name, fence) = (Name::lock("x").unwrap(), Fence::new(7).unwrap());
    let bearer = fence::Bearer::from((&name, fence));
    let [raise, read] = fence::mysql::guard(bearer);
    for statement in [
        fence::postgres::check(bearer),
        fence::postgres::guard(bearer),
        fence::mysql::check(bearer),
        raise,
        read,
        fence::sqlite::check(bearer).in_schema("leases"),
        fence::sqlite::guard(bearer),
    ] {
        let sql = statement.sql();
        assert!(PAGE.contains(&format!("\n{sql}\n")), "{sql}");
    }
    let condition = fence::dynamodb::check(bearer).condition;
    assert!(PAGE.contains(&format!("`{condition}`")));
}

#[test]
fn fencing_page_contains_the_examples() {
    for source in [
        include_str!("../src/fence/postgres.rs"),
        include_str!("../src/fence/mysql.rs"),
        include_str!("../src/fence/sqlite.rs"),
        include_str!("../src/fence/mongodb.rs"),
        include_str!("../src/fence/dynamodb.rs"),
        include_str!("../src/fence/redis.rs"),
        include_str!("../src/fence/cosmos.rs"),
        include_str!("../src/fence/azblob.rs"),
        include_str!("../src/fence/register.rs"),
    ] {
        let example = example(source);
        assert!(
            PAGE.contains(&format!("```rust\n{example}\n```")),
            "{example}"
        );
    }
}

/// Returns the first example in the comments of a file, without hidden lines.
fn example(source: &str) -> String {
    let comments = source.lines().map(str::trim_start);
    let comments =
        comments.filter_map(|line| line.strip_prefix("//!").or(line.strip_prefix("///")));
    let lines: Vec<_> = comments
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .skip_while(|line| !line.starts_with("```"))
        .skip(1)
        .take_while(|line| !line.starts_with("```"))
        .filter(|line| !line.starts_with("# "))
        .collect();
    lines.join("\n").trim().to_owned()
}
