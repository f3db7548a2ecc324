//! Conditional writes, one per record.

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
use super::client::CALL_TIMEOUT;
use super::failure::{self, Ambiguity};
use super::item::{self, Item};
use super::request_trace::{RequestTrace, later};
use crate::store::{Answer, Swapped, Version, Write, WriteId};
use crate::{Error, Result};

/// How many writes of a batch run concurrently, each on its own connection.
const MAX_CONCURRENT: usize = 32;

/// Returns the current record with a conflict.
const ALL_OLD: ReturnValuesOnConditionCheckFailure = ReturnValuesOnConditionCheckFailure::AllOld;

/// Why a write was not done.
enum WriteFailure {
    /// The version did not match. Contains the current item.
    Conflict(Option<Item>),
    Failed(Error),
}

impl DynamoDb {
    pub(super) async fn swap_all(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        let answers: Vec<_> = stream::iter(writes)
            .map(|write| async move { self.swap_one(&write, deadline).await })
            .buffered(MAX_CONCURRENT)
            .collect()
            .await;
        let stamp = answers
            .iter()
            .fold(None, |stamp, (_, own)| later(stamp, *own));
        let value = answers.into_iter().map(|(swapped, _)| swapped).collect();
        match stamp {
            Some(stamp) => Ok(Answer { value, stamp }),
            None => Err(batch_error(value)),
        }
    }

    async fn swap_one(&self, write: &Write, deadline: Instant) -> (Swapped, Option<Stamp>) {
        if Instant::now() >= deadline {
            let late = "DynamoDB answers too slowly: this write was not sent".to_owned();
            return (Swapped::Failed(Error::Unavailable(late)), None);
        }
        let trace = RequestTrace::default();
        let writing = tokio::time::timeout_at(deadline, self.write(write, &trace));
        let swapped = match writing.await {
            Ok(Ok(())) => Swapped::Written { tag: None },
            Ok(Err(WriteFailure::Conflict(current))) => match current.map(item::stored).transpose()
            {
                Ok(current) => Swapped::Conflict(current.map(|(_, stored)| stored)),
                Err(corrupt) => Swapped::Failed(corrupt),
            },
            Ok(Err(WriteFailure::Failed(error))) => Swapped::Failed(error),
            Err(_) => {
                let ambiguity = match trace.was_sent() {
                    true => Ambiguity::MayHaveWritten,
                    false => Ambiguity::None,
                };
                Swapped::Failed(failure::unanswered(
                    "DynamoDB did not answer in time".into(),
                    ambiguity,
                ))
            }
        };
        (swapped, trace.stamp())
    }

    async fn write(&self, write: &Write, trace: &RequestTrace) -> Result<(), WriteFailure> {
        let expect = write.expect.as_ref();
        match &write.put {
            None => self.delete(&write.name, expect, trace).await,
            Some((id, record)) => match expect {
                Some(version) if !write.body_changed => {
                    self.update(&write.name, version, *id, record, trace).await
                }
                expect => self.put(&write.name, expect, *id, record, trace).await,
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
        trace: &RequestTrace,
    ) -> Result<(), WriteFailure> {
        let value_attributes =
            item::value_attributes(name, id, record).map_err(WriteFailure::Failed)?;
        let body = (item::BODY, item::text(&*record.body));
        let item = value_attributes
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .chain(item::key_attributes(name))
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
            .interceptor(trace.clone())
            .send()
            .await;
        answer.map(drop).map_err(|error| refused(&error, trace))
    }

    /// Writes everything except the body, which is unchanged and not sent.
    async fn update(
        &self,
        name: &Name,
        expect: &Version,
        id: WriteId,
        record: &Record,
        trace: &RequestTrace,
    ) -> Result<(), WriteFailure> {
        let value_attributes =
            item::value_attributes(name, id, record).map_err(WriteFailure::Failed)?;
        let mut condition = Condition::of(Some(expect));
        let mut values = condition.values.take().unwrap_or_default();
        let (mut set, mut remove) = (Vec::new(), Vec::new());
        for (key, value) in value_attributes {
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
            .interceptor(trace.clone())
            .send()
            .await;
        answer.map(drop).map_err(|error| refused(&error, trace))
    }

    async fn delete(
        &self,
        name: &Name,
        expect: Option<&Version>,
        trace: &RequestTrace,
    ) -> Result<(), WriteFailure> {
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
            .interceptor(trace.clone())
            .send()
            .await;
        answer.map(drop).map_err(|error| refused(&error, trace))
    }
}

/// The condition of a write. A condition with a version is false if there is no item.
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
trait ConditionalError {
    /// Returns the current item if the condition failed.
    fn conflict(&self) -> Option<Option<&Item>>;
}

macro_rules! conditional {
    ($($error:ty),*) => {
        $(impl ConditionalError for $error {
            fn conflict(&self) -> Option<Option<&Item>> {
                match self {
                    Self::ConditionalCheckFailedException(failed) => Some(failed.item.as_ref()),
                    _ => None,
                }
            }
        })*
    };
}
conditional!(PutItemError, UpdateItemError, DeleteItemError);

fn refused<E>(error: &SdkError<E>, trace: &RequestTrace) -> WriteFailure
where
    E: ConditionalError + ProvideErrorMetadata + std::error::Error + 'static,
{
    match error
        .as_service_error()
        .and_then(ConditionalError::conflict)
    {
        // An empty item means that there is none.
        Some(current) => WriteFailure::Conflict(current.filter(|item| !item.is_empty()).cloned()),
        None => WriteFailure::Failed(failure::of(error, trace, Ambiguity::MayHaveWritten)),
    }
}

/// Returns the error for a batch without any time: indeterminate, if any write is.
fn batch_error(swapped: Vec<Swapped>) -> Error {
    let mut first = None;
    for swapped in swapped {
        match swapped {
            Swapped::Failed(ambiguous @ Error::Indeterminate(_)) => return ambiguous,
            Swapped::Failed(error) => first = first.or(Some(error)),
            _ => return Error::Indeterminate("DynamoDB answered without a time".into()),
        }
    }
    first.unwrap_or_else(|| Error::Unavailable("no request was sent to DynamoDB".into()))
}
