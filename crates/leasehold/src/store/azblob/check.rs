//! The checks of `leasehold doctor` for the container and its account.

use azure_core::http::pager::PagerOptions;
use azure_storage_blob::models::{
    BlobContainerClientGetAccountInfoOptions, BlobContainerClientGetAccountInfoResultHeaders as _,
    BlobContainerClientGetPropertiesOptions, BlobContainerClientGetPropertiesResultHeaders as _,
    BlobContainerClientListBlobsOptions, BlobServiceClientGetPropertiesOptions,
    ListBlobsIncludeItem, RetentionPolicy, SkuName,
};
use futures_util::TryStreamExt as _;

use super::AzBlob;
use super::client::send;
use super::failure::Ambiguity;
use crate::Result;
use crate::store::Check;

/// The fix for accounts that keep copies of old versions.
const COPIES_FIX: &str = "use an account without it for leases: every renewal is a write, and leaves a copy that costs money";

impl AzBlob {
    pub(super) async fn checks(&self) -> Result<Vec<Check>> {
        let mut checks = self.container().await?;
        checks.push(self.versions().await?);
        checks.push(self.soft_delete().await);
        checks.extend(self.replication().await);
        Ok(checks)
    }

    async fn container(&self) -> Result<Vec<Check>> {
        let answer = send(
            self.deadline(),
            Ambiguity::None,
            |method_options| async move {
                let options = BlobContainerClientGetPropertiesOptions {
                    method_options,
                    ..BlobContainerClientGetPropertiesOptions::default()
                };
                let answer = self.clients.container.get_properties(Some(options)).await?;
                let holds = [answer.has_immutability_policy()?, answer.has_legal_hold()?];
                Ok((holds.contains(&Some(true)), answer.access()?.is_some()))
            },
        );
        let Ok((is_immutable, is_public)) = answer.await?.value else {
            return Ok(vec![Check::yellow(
                "cannot determine whether the container is public or immutable",
                "allow reading the container's properties: the role Storage Blob Data Contributor, or a key of the account",
            )]);
        };
        Ok(vec![
            immutability_check(is_immutable),
            public_access_check(is_public),
        ])
    }

    /// Lists a blob, which searches require too. The answer shows whether the account keeps versions.
    async fn versions(&self) -> Result<Check> {
        let answer = send(self.deadline(), Ambiguity::None, |method| async move {
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
        let (has_versions, _) = answer.await?.or_error(Ambiguity::None)?;
        Ok(match has_versions {
            true => Check::yellow("the account keeps all versions of a blob", COPIES_FIX),
            false => Check::green("blobs can be listed, and have no old versions"),
        })
    }

    async fn soft_delete(&self) -> Check {
        let answer = send(
            self.deadline(),
            Ambiguity::None,
            |method_options| async move {
                let options = BlobServiceClientGetPropertiesOptions {
                    method_options,
                    ..BlobServiceClientGetPropertiesOptions::default()
                };
                let answer = self.clients.service.get_properties(Some(options)).await?;
                Ok(answer.into_model()?.delete_retention_policy)
            },
        );
        match answer.await.map(|answer| answer.value) {
            Ok(Ok(policy)) => soft_delete_check(policy.as_ref()),
            _ => Check::yellow(
                "cannot determine whether the account keeps overwritten blobs (soft delete)",
                "allow reading the properties of the account's blob service, or check: az storage account \
                 blob-service-properties show",
            ),
        }
    }

    /// Returns `None` without the right to ask, or with an emulator that lacks it.
    async fn replication(&self) -> Option<Check> {
        let answer = send(
            self.deadline(),
            Ambiguity::None,
            |method_options| async move {
                let options = BlobContainerClientGetAccountInfoOptions {
                    method_options,
                    ..BlobContainerClientGetAccountInfoOptions::default()
                };
                let answer = self.clients.container.get_account_info(Some(options));
                answer.await?.sku_name()
            },
        );
        answer.await.ok()?.value.ok()?.map(|sku| durability(&sku))
    }
}

fn immutability_check(is_immutable: bool) -> Check {
    match is_immutable {
        false => Check::green("blobs can be changed"),
        true => Check::red(
            "the container has an immutability policy or a legal hold: no lease can be renewed or released",
            "use a container without them: az storage container create",
        ),
    }
}

fn public_access_check(is_public: bool) -> Check {
    match is_public {
        false => Check::green("reading the records requires credentials"),
        true => Check::yellow(
            "the container is public: everyone can read the records",
            "az storage container set-permission --public-access off",
        ),
    }
}

fn soft_delete_check(policy: Option<&RetentionPolicy>) -> Check {
    match policy {
        Some(policy) if policy.enabled == Some(true) => Check::yellow(
            format!(
                "the account keeps overwritten blobs for {} days (soft delete)",
                policy.days.unwrap_or_default()
            ),
            COPIES_FIX,
        ),
        _ => Check::green("overwritten blobs are not kept"),
    }
}

fn durability(sku: &SkuName) -> Check {
    match sku {
        SkuName::StandardLrs | SkuName::PremiumLrs => {
            Check::green("three copies in one data centre")
        }
        SkuName::StandardZrs | SkuName::PremiumZrs => Check::green("copies in three zones"),
        _ => Check::yellow(
            "another region has a copy that is some minutes old: a failover to it loses leases and fences",
            "after a failover, wait for the longest ttl and restart all holders; or use an account with ZRS",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Level;

    #[test]
    fn unsafe_settings_are_reported() {
        assert_eq!(immutability_check(true).level, Level::Red);
        assert_eq!(public_access_check(true).level, Level::Yellow);
        let mut policy = RetentionPolicy::default();
        assert_eq!(soft_delete_check(Some(&policy)).level, Level::Green);
        policy.enabled = Some(true);
        policy.days = Some(7);
        let check = soft_delete_check(Some(&policy));
        assert_eq!(check.level, Level::Yellow);
        assert!(check.what.contains("7 days"), "{}", check.what);
        assert_eq!(durability(&SkuName::StandardZrs).level, Level::Green);
        assert_eq!(durability(&SkuName::StandardRagrs).level, Level::Yellow);
    }
}
