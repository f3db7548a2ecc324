//! Shared by the SQL databases.

use leasehold_core::Kind;

use super::Bearer;

/// A statement and its two parameters: the name and the fence, in this order.
///
/// It returns **one row if the fence may write, and none if not**: then roll back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    template: &'static str,
    quote: char,
    schema: Option<String>,
    kind: Kind,
    name: String,
    fence: i64,
}

impl Statement {
    /// Creates a statement from a template with the placeholders `{schema}` and `{kind}`.
    pub(super) fn new(template: &'static str, quote: char, bearer: Bearer<'_>) -> Self {
        Self {
            template,
            quote,
            schema: None,
            kind: bearer.name.kind(),
            name: bearer.name.as_str().to_owned(),
            fence: bearer.fence.get().cast_signed(),
        }
    }

    /// Sets the schema (PostgreSQL), database (MySQL) or attached file (SQLite) of the table.
    #[must_use]
    pub fn in_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// Returns the statement, which is the same for every name and fence of a kind.
    pub fn sql(&self) -> String {
        let quote = self.quote;
        let schema = self.schema.as_ref().map_or(String::new(), |schema| {
            let doubled = String::from_iter([quote, quote]);
            format!("{quote}{}{quote}.", schema.replace(quote, &doubled))
        });
        self.template
            .replace("{kind}", self.kind.as_str())
            .replace("{schema}", &schema)
    }

    /// Returns the first parameter: the lease's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the second parameter: the fence.
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// Returns both parameters, in the form that many drivers accept.
    pub fn values(&self) -> (&str, i64) {
        (&self.name, self.fence)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Fence, Name};

    use super::super::{mysql, postgres, sqlite};

    #[test]
    fn schema_is_quoted_for_each_database() {
        let (name, fence) = (Name::gate("x").unwrap(), Fence::new(7).unwrap());
        let odd = "a\"b`c";
        for (statement, table) in [
            (
                postgres::check((&name, fence)),
                r#""a""b`c".leasehold_records"#,
            ),
            (
                postgres::guard((&name, fence)),
                r#""a""b`c".leasehold_fences"#,
            ),
            (
                mysql::check((&name, fence)),
                r#"`a"b``c`.leasehold_records"#,
            ),
            (sqlite::check((&name, fence)), r#""a""b`c".records"#),
        ] {
            assert!(!statement.sql().contains(".leasehold_"));
            let sql = statement.in_schema(odd).sql();
            assert!(sql.contains(table) && sql.contains("'gate'"), "{sql}");
        }
    }
}
