//! The DynamoDB client: endpoint, credentials and timeouts.

use std::time::Duration;

use aws_config::environment::credentials::EnvironmentVariableCredentialsProvider;
use aws_config::meta::credentials::CredentialsProviderChain;
use aws_config::retry::RetryConfig;
use aws_config::timeout::{TimeoutConfig, TimeoutConfigBuilder};
use aws_config::{BehaviorVersion, ConfigLoader};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{
    Credentials, ProvideCredentials as _, Region, SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use super::failure::cause;
use super::options::DynamoDbOptions;
use crate::{Error, Result};

/// How long a call may take: less than the engine's own limit.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(4);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long each attempt of a read may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(2_500);
/// How long to look for credentials: a machine's role is looked up over the network.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(15);

/// The SDK's clients, with and without retries.
pub(super) struct Clients {
    /// Retries requests.
    pub(super) reads: Client,
    /// Sends requests once: after a retry, it is unknown whether the first attempt wrote.
    pub(super) writes: Client,
}

impl Clients {
    pub(super) async fn connect(options: &DynamoDbOptions) -> Result<Self> {
        let config = loader(options).load().await;
        if config.region().is_none() {
            return Err(Error::invalid(
                "no AWS region: add `?region=REGION` to the store URL, or set AWS_REGION",
            ));
        }
        check_credentials(&config).await?;
        let writes = aws_sdk_dynamodb::Config::from(&config);
        let reads = writes
            .to_builder()
            .retry_config(RetryConfig::standard().with_max_attempts(3))
            .timeout_config(
                timeouts()
                    .operation_attempt_timeout(ATTEMPT_TIMEOUT)
                    .build(),
            );
        Ok(Self {
            reads: Client::from_conf(reads.build()),
            writes: Client::from_conf(writes),
        })
    }
}

/// Configures the SDK from the URL, and otherwise from the environment.
fn loader(options: &DynamoDbOptions) -> ConfigLoader {
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http(options))
        .timeout_config(timeouts().build())
        // Answers are small: the timeout of the whole call suffices.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .retry_config(RetryConfig::disabled());
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(endpoint) = &options.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if let Some(profile) = &options.profile {
        loader = loader.profile_name(profile);
    }
    if options.is_local() {
        let any = Credentials::new("local", "local", None, None, "emulator");
        let environment = EnvironmentVariableCredentialsProvider::new();
        let chain = CredentialsProviderChain::first_try("Environment", environment);
        loader = loader.credentials_provider(chain.or_else("Emulator", any));
    }
    loader
}

fn timeouts() -> TimeoutConfigBuilder {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT)
}

/// Creates the HTTP client. Uses ring because AWS-LC, the default, needs a C compiler and takes minutes to build.
fn http(options: &DynamoDbOptions) -> SharedHttpClient {
    let endpoint = options.endpoint.as_deref();
    if endpoint.is_some_and(|url| url.starts_with("http://")) {
        return Builder::new().build_http();
    }
    Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https()
}

/// Fails immediately without credentials, rather than by a request that times out.
async fn check_credentials(config: &aws_config::SdkConfig) -> Result<()> {
    let missing = |problem: String| {
        Error::Denied(format!(
            "no AWS credentials: {problem}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, set a `profile` in the \
             store URL, or give this machine a role"
        ))
    };
    let Some(provider) = config.credentials_provider() else {
        return Err(missing("none are configured".into()));
    };
    match tokio::time::timeout(CREDENTIALS_TIMEOUT, provider.provide_credentials()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(missing(cause(&error).replace('\n', ";"))),
        Err(_) => Err(missing(format!(
            "none were found within {CREDENTIALS_TIMEOUT:?}"
        ))),
    }
}
