//! What `leasehold doctor` finds out about the container and its account.

use azure_core::http::pager::PagerOptions;
use azure_storage_blob::models::{
    BlobContainerClientGetAccountInfoOptions, BlobContainerClientGetAccountInfoResultHeaders as _,
    BlobContainerClientGetPropertiesOptions, BlobContainerClientGetPropertiesResultHeaders as _,
    BlobContainerClientListBlobsOptions, BlobServiceClientGetPropertiesOptions,
    ListBlobsIncludeItem, RetentionPolicy, SkuName,
};
use futures_util::TryStreamExt as _;

use super::AzBlob;
use super::client::ask;
use super::failure::Doubt;
use crate::Result;
use crate::store::Check;

/// What copies of old versions cost, and whose they are.
const COPIES: &str = "use an account without it for leases: every renewal is a write, and leaves a copy to be paid for";

impl AzBlob {
    pub(super) async fn checks(&self) -> Result<Vec<Check>> {
        let mut checks = self.container().await?;
        checks.push(self.versions().await?);
        checks.push(self.soft_delete().await);
        checks.extend(self.replication().await);
        Ok(checks)
    }

    async fn container(&self) -> Result<Vec<Check>> {
        let asked = ask(self.deadline(), Doubt::None, |method_options| async move {
            let options = BlobContainerClientGetPropertiesOptions {
                method_options,
                ..BlobContainerClientGetPropertiesOptions::default()
            };
            let answer = self.clients.container.get_properties(Some(options)).await?;
            let holds = [answer.has_immutability_policy()?, answer.has_legal_hold()?];
            Ok((holds.contains(&Some(true)), answer.access()?.is_some()))
        });
        let Ok((is_held, is_public)) = asked.await?.value else {
            return Ok(vec![Check::yellow(
                "whether the container is public, or takes changes, cannot be told",
                "allow reading the container's properties: the role Storage Blob Data Contributor, or a key of the account",
            )]);
        };
        Ok(vec![may_change(is_held), may_be_read(is_public)])
    }

    /// Lists, which a search needs, too; an account with versions then tells of them.
    async fn versions(&self) -> Result<Check> {
        let asked = ask(self.deadline(), Doubt::None, |method| async move {
            let options = BlobContainerClientListBlobsOptions {
                include: Some(vec![ListBlobsIncludeItem::Versions]),
                maxresults: Some(1),
                method_options: PagerOptions {
                    context: method.context,
                    ..PagerOptions::default()
                },
                ..BlobContainerClientListBlobsOptions::default()
            };
            let pages = self.clients.container.list_blobs(Some(options))?;
            let page = pages.into_pages().try_next().await?;
            let items = page.map(|page| page.into_model()).transpose()?;
            let items = items.map(|page| page.blob_items).unwrap_or_default();
            Ok(items.iter().any(|blob| blob.version_id.is_some()))
        });
        let (has_versions, _) = asked.await?.or_error(Doubt::None)?;
        Ok(match has_versions {
            true => Check::yellow("the account keeps all versions of a blob", COPIES),
            false => Check::green("blobs can be listed, and have no old versions"),
        })
    }

    async fn soft_delete(&self) -> Check {
        let asked = ask(self.deadline(), Doubt::None, |method_options| async move {
            let options = BlobServiceClientGetPropertiesOptions {
                method_options,
                ..BlobServiceClientGetPropertiesOptions::default()
            };
            let answer = self.clients.service.get_properties(Some(options)).await?;
            Ok(answer.into_model()?.delete_retention_policy)
        });
        match asked.await.map(|answered| answered.value) {
            Ok(Ok(policy)) => kept_for(policy.as_ref()),
            _ => Check::yellow(
                "whether the account keeps what is overwritten (soft delete) cannot be told",
                "allow reading the properties of the account's blob service, or look: az storage account \
                 blob-service-properties show",
            ),
        }
    }

    /// Not everybody may ask, and not every emulator knows.
    async fn replication(&self) -> Option<Check> {
        let asked = ask(self.deadline(), Doubt::None, |method_options| async move {
            let options = BlobContainerClientGetAccountInfoOptions {
                method_options,
                ..BlobContainerClientGetAccountInfoOptions::default()
            };
            let answer = self.clients.container.get_account_info(Some(options));
            answer.await?.sku_name()
        });
        asked.await.ok()?.value.ok()?.map(|sku| durability(&sku))
    }
}

fn may_change(is_held: bool) -> Check {
    match is_held {
        false => Check::green("blobs can be changed"),
        true => Check::red(
            "the container has an immutability policy or a legal hold: no lease can be renewed or released",
            "use a container without: az storage container create",
        ),
    }
}

fn may_be_read(is_public: bool) -> Check {
    match is_public {
        false => Check::green("only those with credentials can read the records"),
        true => Check::yellow(
            "everybody can read the records: the container is public",
            "az storage container set-permission --public-access off",
        ),
    }
}

fn kept_for(policy: Option<&RetentionPolicy>) -> Check {
    match policy {
        Some(policy) if policy.enabled == Some(true) => Check::yellow(
            format!(
                "the account keeps what is overwritten for {} days (soft delete)",
                policy.days.unwrap_or_default()
            ),
            COPIES,
        ),
        _ => Check::green("what is overwritten is not kept"),
    }
}

fn durability(sku: &SkuName) -> Check {
    match sku {
        SkuName::StandardLrs | SkuName::PremiumLrs => {
            Check::green("three copies in one data centre")
        }
        SkuName::StandardZrs | SkuName::PremiumZrs => Check::green("copies in three zones"),
        _ => Check::yellow(
            "another region has a copy that is some minutes old: after a failover to it, leases and fences are forgotten",
            "after a failover, wait for the longest ttl and restart what holds leases; or use an account with ZRS",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Level;

    #[test]
    fn what_is_unsafe_is_told() {
        assert_eq!(may_change(true).level, Level::Red);
        assert_eq!(may_be_read(true).level, Level::Yellow);
        let mut policy = RetentionPolicy::default();
        assert_eq!(kept_for(Some(&policy)).level, Level::Green);
        policy.enabled = Some(true);
        policy.days = Some(7);
        let check = kept_for(Some(&policy));
        assert_eq!(check.level, Level::Yellow);
        assert!(check.what.contains("7 days"), "{}", check.what);
        assert_eq!(durability(&SkuName::StandardZrs).level, Level::Green);
        assert_eq!(durability(&SkuName::StandardRagrs).level, Level::Yellow);
    }
}
