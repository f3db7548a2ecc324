//! docs/guides/fence-your-writes.md shows what is tested: the statements and the examples of `leasehold::fence`.

use leasehold::core::{Fence, Name};
use leasehold::fence;

const PAGE: &str = include_str!("../../../docs/guides/fence-your-writes.md");

#[test]
fn statements_are_those_of_the_library() {
    let (name, fence) = (Name::lock("x").unwrap(), Fence::new(7).unwrap());
    let bearer = fence::Bearer::from((&name, fence));
    let [raise, look] = fence::mysql::guard(bearer);
    for statement in [
        fence::postgres::check(bearer),
        fence::postgres::guard(bearer),
        fence::mysql::check(bearer),
        raise,
        look,
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
fn examples_are_those_of_the_documentation_comments() {
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

/// The first example in the comments of a file, without what it hides.
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
