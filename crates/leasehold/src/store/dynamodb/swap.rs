//! Conditional writes, one for each record.

use std::collections::HashMap;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use futures_util::{StreamExt as _, stream};
use leasehold_core::{Name, Record, Stamp};
use tokio::time::Instant;

use super::DynamoDb;
use super::client::PATIENCE;
use super::failure::{self, Doubt};
use super::item::{self, Item};
use super::witness::{Witness, later};
use crate::store::{Answer, Swapped, Version, Write, WriteId};
use crate::{Error, Result};

/// How many writes of a batch are under way at once, each on a connection of its own.
const AT_ONCE: usize = 32;

/// The loser's answer brings the current record along.
const ALL_OLD: ReturnValuesOnConditionCheckFailure = ReturnValuesOnConditionCheckFailure::AllOld;

/// Why a write was not done.
enum Refused {
    /// The version does not match. This is what is there.
    Lost(Option<Item>),
    Failed(Error),
}

impl DynamoDb {
    pub(super) async fn swap_all(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let deadline = Instant::now() + PATIENCE;
        let answers: Vec<_> = stream::iter(writes)
            .map(|write| async move { self.swap_one(&write, deadline).await })
            .buffered(AT_ONCE)
            .collect()
            .await;
        let stamp = answers
            .iter()
            .fold(None, |stamp, (_, own)| later(stamp, *own));
        let value = answers.into_iter().map(|(swapped, _)| swapped).collect();
        match stamp {
            Some(stamp) => Ok(Answer { value, stamp }),
            None => Err(worst(value)),
        }
    }

    async fn swap_one(&self, write: &Write, deadline: Instant) -> (Swapped, Option<Stamp>) {
        if Instant::now() >= deadline {
            let late = "DynamoDB is too slow: this write was not sent".to_owned();
            return (Swapped::Failed(Error::Unavailable(late)), None);
        }
        let witness = Witness::default();
        let writing = tokio::time::timeout_at(deadline, self.write(write, &witness));
        let swapped = match writing.await {
            Ok(Ok(())) => Swapped::Written { tag: None },
            Ok(Err(Refused::Lost(current))) => match current.map(item::stored).transpose() {
                Ok(current) => Swapped::Conflict(current.map(|(_, stored)| stored)),
                Err(corrupt) => Swapped::Failed(corrupt),
            },
            Ok(Err(Refused::Failed(error))) => Swapped::Failed(error),
            Err(_) => {
                let doubt = match witness.was_sent() {
                    true => Doubt::MayHaveWritten,
                    false => Doubt::None,
                };
                Swapped::Failed(failure::lost(
                    "DynamoDB did not answer in time".into(),
                    doubt,
                ))
            }
        };
        (swapped, witness.stamp())
    }

    async fn write(&self, write: &Write, witness: &Witness) -> Result<(), Refused> {
        let expect = write.expect.as_ref();
        match &write.put {
            None => self.delete(&write.name, expect, witness).await,
            Some((id, record)) => match expect {
                Some(version) if !write.body_changed => {
                    self.update(&write.name, version, *id, record, witness)
                        .await
                }
                expect => self.put(&write.name, expect, *id, record, witness).await,
            },
        }
    }

    /// Writes the whole item.
    async fn put(
        &self,
        name: &Name,
        expect: Option<&Version>,
        id: WriteId,
        record: &Record,
        witness: &Witness,
    ) -> Result<(), Refused> {
        let changing = item::changing(name, id, record).map_err(Refused::Failed)?;
        let body = (item::BODY, item::text(&*record.body));
        let item = changing
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .chain(item::naming(name))
            .chain([body])
            .map(|(key, value)| (key.to_owned(), value));
        let condition = Condition::of(expect);
        let request = self.clients.writes.put_item();
        let answer = request
            .table_name(&self.options.table)
            .set_item(Some(item.collect()))
            .condition_expression(condition.text)
            .set_expression_attribute_names(Some(condition.names))
            .set_expression_attribute_values(condition.values)
            .return_values_on_condition_check_failure(ALL_OLD)
            .customize()
            .interceptor(witness.clone())
            .send()
            .await;
        answer.map(drop).map_err(|error| refused(&error, witness))
    }

    /// Writes all but the body, which stays as it is and is not moved.
    async fn update(
        &self,
        name: &Name,
        expect: &Version,
        id: WriteId,
        record: &Record,
        witness: &Witness,
    ) -> Result<(), Refused> {
        let changing = item::changing(name, id, record).map_err(Refused::Failed)?;
        let mut condition = Condition::of(Some(expect));
        let mut values = condition.values.take().unwrap_or_default();
        let (mut set, mut remove) = (Vec::new(), Vec::new());
        for (key, value) in changing {
            condition.names.insert(format!("#{key}"), key.to_owned());
            match value {
                Some(value) => {
                    set.push(format!("#{key} = :{key}"));
                    values.insert(format!(":{key}"), value);
                }
                None => remove.push(format!("#{key}")),
            }
        }
        let mut update = format!("SET {}", set.join(", "));
        if !remove.is_empty() {
            update = format!("{update} REMOVE {}", remove.join(", "));
        }
        let request = self.clients.writes.update_item();
        let answer = request
            .table_name(&self.options.table)
            .key(item::ID, item::text(item::id(name)))
            .update_expression(update)
            .condition_expression(condition.text)
            .set_expression_attribute_names(Some(condition.names))
            .set_expression_attribute_values(Some(values))
            .return_values_on_condition_check_failure(ALL_OLD)
            .customize()
            .interceptor(witness.clone())
            .send()
            .await;
        answer.map(drop).map_err(|error| refused(&error, witness))
    }

    async fn delete(
        &self,
        name: &Name,
        expect: Option<&Version>,
        witness: &Witness,
    ) -> Result<(), Refused> {
        let condition = Condition::of(expect);
        let request = self.clients.writes.delete_item();
        let answer = request
            .table_name(&self.options.table)
            .key(item::ID, item::text(item::id(name)))
            .condition_expression(condition.text)
            .set_expression_attribute_names(Some(condition.names))
            .set_expression_attribute_values(condition.values)
            .return_values_on_condition_check_failure(ALL_OLD)
            .customize()
            .interceptor(witness.clone())
            .send()
            .await;
        answer.map(drop).map_err(|error| refused(&error, witness))
    }
}

/// What must still be true for a write to happen. One with a version is never true where nothing is.
struct Condition {
    text: &'static str,
    names: HashMap<String, String>,
    values: Option<HashMap<String, AttributeValue>>,
}

impl Condition {
    fn of(expect: Option<&Version>) -> Self {
        let named = |alias: &str, key: &str| HashMap::from([(alias.to_owned(), key.to_owned())]);
        match expect {
            None => Self {
                text: "attribute_not_exists(#id)",
                names: named("#id", item::ID),
                values: None,
            },
            Some(version) => Self {
                text: "#write = :expected",
                names: named("#write", item::WRITE),
                values: Some(HashMap::from([(
                    ":expected".to_owned(),
                    item::text(version.write.to_string()),
                )])),
            },
        }
    }
}

/// The error of a conditional write.
trait Conditional {
    /// What is there, if that is why nothing was written.
    fn lost(&self) -> Option<Option<&Item>>;
}

macro_rules! conditional {
    ($($error:ty),*) => {
        $(impl Conditional for $error {
            fn lost(&self) -> Option<Option<&Item>> {
                match self {
                    Self::ConditionalCheckFailedException(lost) => Some(lost.item.as_ref()),
                    _ => None,
                }
            }
        })*
    };
}
conditional!(PutItemError, UpdateItemError, DeleteItemError);

fn refused<E>(error: &SdkError<E>, witness: &Witness) -> Refused
where
    E: Conditional + ProvideErrorMetadata + std::error::Error + 'static,
{
    match error.as_service_error().and_then(Conditional::lost) {
        // An empty item is none.
        Some(current) => Refused::Lost(current.filter(|item| !item.is_empty()).cloned()),
        None => Refused::Failed(failure::of(error, witness, Doubt::MayHaveWritten)),
    }
}

/// What to say of a batch whose answers, if any, told no time: in doubt, if any of it is.
fn worst(swapped: Vec<Swapped>) -> Error {
    let mut worst = None;
    for swapped in swapped {
        match swapped {
            Swapped::Failed(doubtful @ Error::Indeterminate(_)) => return doubtful,
            Swapped::Failed(error) => worst = worst.or(Some(error)),
            _ => return Error::Indeterminate("DynamoDB answered, but told no time".into()),
        }
    }
    worst.unwrap_or_else(|| Error::Unavailable("DynamoDB was asked nothing".into()))
}
