//! Simulated AWS: STS, Account, ACM, IAM, Elastic Load Balancing, CloudFront and API Gateway, for several accounts and regions.
//!
//! As in AWS, region and service come from the scope of the request signature, and the account comes from the access key.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::server::{Cloud, Gate};
use super::{
    CertificateFactory, CloudBehavior, CloudRequest, Fault, MintedCertificate, OperationCounts, Quota, Reply,
    Server, SimulatedCertificate, page,
};
use crate::FleetError;
use crate::key_kind::KeyKind;

/// ACM's quotas of 2026 per account and region. For listing, the lower of two observed quotas.
const QUOTAS: &[(&str, Quota)] = &[
    ("ListCertificates", Quota::per_second(1)),
    ("GetCertificate", Quota::per_second(10)),
    ("DescribeCertificate", Quota::per_second(10)),
    ("ListTagsForCertificate", Quota::per_second(10)),
];
/// Quota of all other operations; not documented by AWS.
const OTHER: Quota = Quota::per_second(10);
/// Access key of the principal that may assume the roles of all accounts.
pub const ACCESS_KEY: &str = "AKIAFLEET0000000ROOT";
const REGIONS: [&str; 10] = [
    "us-east-1",
    "us-east-2",
    "us-west-2",
    "eu-west-1",
    "eu-central-1",
    "ap-northeast-1",
    "ap-southeast-1",
    "ap-southeast-2",
    "ca-central-1",
    "sa-east-1",
];

/// Contents of a simulated AWS: numbers of accounts, regions and resources.
#[derive(Clone, Debug)]
pub struct AwsPlan {
    /// Number of accounts, all with the same number of resources.
    pub accounts: usize,
    /// Number of enabled regions, ten at most.
    pub regions: usize,
    /// ACM certificates per region: a third each with RSA, P-256 and P-384 keys, every fifth obtained by ACME.
    pub acm: usize,
    /// IAM server certificates per account.
    pub iam: usize,
    /// Load balancers per region, each with two of its ACM certificates.
    pub balancers: usize,
    /// Delays, page sizes and throttling of the simulated cloud.
    pub manners: CloudBehavior,
}

impl Default for AwsPlan {
    fn default() -> Self {
        Self { accounts: 1, regions: 2, acm: 12, iam: 3, balancers: 1, manners: CloudBehavior::default() }
    }
}

struct StoredCertificate {
    arn: String,
    id: String,
    minted: Option<MintedCertificate>,
    acme: bool,
    issued: i64,
    used_by: Vec<String>,
    /// Whether the certificate is used by a service that this simulation does not list.
    elsewhere: bool,
    tags: BTreeMap<String, String>,
}

#[derive(Default)]
struct Account {
    acm: BTreeMap<String, Vec<StoredCertificate>>,
    iam: Vec<StoredCertificate>,
}

struct Contents {
    regions: Vec<&'static str>,
    balancers: usize,
    accounts: BTreeMap<String, Account>,
    /// Issued session tokens, by access key.
    tokens: HashMap<String, String>,
    /// Operations that are denied to all callers.
    denied: Vec<&'static str>,
}

struct Aws(std::sync::Arc<Mutex<Contents>>);

/// A running simulated cloud. Stops when dropped.
pub struct AwsCloud {
    server: Server,
    contents: std::sync::Arc<Mutex<Contents>>,
    factory: CertificateFactory,
}

impl AwsCloud {
    /// Creates all certificates and starts serving.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn start(plan: &AwsPlan) -> Result<Self, FleetError> {
        let factory = CertificateFactory::new()?;
        let regions: Vec<_> = REGIONS.into_iter().take(plan.regions.clamp(1, REGIONS.len())).collect();
        let mut accounts = BTreeMap::new();
        for number in 0..plan.accounts {
            let id = format!("{:012}", 111_111_111_111_u64 + number as u64);
            accounts.insert(id.clone(), create_account(&factory, plan, &regions, &id)?);
        }
        let contents = Contents {
            regions,
            balancers: plan.balancers,
            accounts,
            tokens: HashMap::new(),
            denied: Vec::new(),
        };
        let contents = std::sync::Arc::new(Mutex::new(contents));
        let server = Server::start(Aws(contents.clone()), plan.manners.clone(), None)?;
        Ok(Self { server, contents, factory })
    }

    /// Returns the endpoint of all services.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port())
    }

    /// Returns the account numbers.
    #[must_use]
    pub fn accounts(&self) -> Vec<String> {
        self.contents.lock().accounts.keys().cloned().collect()
    }

    /// Returns the ARN of the role to assume in an account.
    #[must_use]
    pub fn role(account: &str) -> String {
        format!("arn:aws:iam::{account}:role/scan")
    }

    /// Sets the fault of all further requests.
    pub fn set_fault(&self, fault: Fault) {
        self.server.set_fault(fault);
    }

    /// Denies these operations to all callers from now on, with the error format of their service.
    pub fn deny(&self, operations: &[&'static str]) {
        self.contents.lock().denied = operations.to_vec();
    }

    /// Replaces the tags of the first ACM certificate of the first account and region; returns its ARN.
    pub fn replace_first_tags(&self, tags: &[(&str, &str)]) -> Option<String> {
        let mut contents = self.contents.lock();
        let stored = contents.accounts.values_mut().next()?.acm.values_mut().next()?.first_mut()?;
        stored.tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Some(stored.arn.clone())
    }

    /// Returns the counters by operation and `ACCOUNT/REGION`.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&'static str, String), OperationCounts> {
        self.server.counts()
    }

    /// Returns the number of connections and of requests so far.
    #[must_use]
    pub fn traffic(&self) -> (u64, u64) {
        self.server.traffic()
    }

    /// Returns the certificates that a scanner should find.
    #[must_use]
    pub fn truth(&self) -> Vec<SimulatedCertificate> {
        let contents = self.contents.lock();
        let mut truth = Vec::new();
        for account in contents.accounts.values() {
            truth.extend(account.acm.values().flatten().map(|stored| stored.truth("aws-acm")));
            truth.extend(account.iam.iter().map(|stored| stored.truth("aws-iam")));
        }
        truth.sort();
        truth
    }

    /// Renews the first ACM certificate of the first account and region; returns its ARN and the new leaf's SHA-256.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn renew_one(&self) -> Result<Option<(String, String)>, FleetError> {
        let mut contents = self.contents.lock();
        let first = contents.accounts.values_mut().next().and_then(|account| account.acm.values_mut().next());
        let Some(stored) = first.and_then(|stored| stored.iter_mut().find(|stored| stored.minted.is_some()))
        else {
            return Ok(None);
        };
        let Some(old) = &stored.minted else { return Ok(None) };
        let new = self.factory.mint(old.names.clone(), old.kind, 300)?;
        let sha256 = new.sha256();
        stored.minted = Some(new);
        stored.issued += 1;
        Ok(Some((stored.arn.clone(), sha256)))
    }

    /// Deletes the last ACM certificate of the first account and region; returns its ARN.
    pub fn delete_one(&self) -> Option<String> {
        let mut contents = self.contents.lock();
        let stored = contents.accounts.values_mut().next()?.acm.values_mut().next()?.pop()?;
        Some(stored.arn)
    }
}

impl StoredCertificate {
    fn truth(&self, store: &'static str) -> SimulatedCertificate {
        let mut used_by = self.used_by.clone();
        used_by.extend(self.elsewhere.then(|| elsewhere(&self.arn)));
        used_by.sort();
        let leaf_sha256 = self.minted.as_ref().map(MintedCertificate::sha256);
        SimulatedCertificate { store, name: self.arn.clone(), leaf_sha256, used_by, tags: self.tags.clone() }
    }

    fn summary(&self) -> Value {
        let in_use = !self.used_by.is_empty() || self.elsewhere;
        let Some(minted) = &self.minted else {
            return json!({"CertificateArn": self.arn, "Status": "PENDING_VALIDATION", "Type": "AMAZON_ISSUED",
                "KeyAlgorithm": "RSA_2048", "InUse": false, "CreatedAt": 1.7e9,
                "CertificateKeyPairOrigin": "AWS_MANAGED"});
        };
        json!({
            "CertificateArn": self.arn, "DomainName": minted.names[0],
            "SubjectAlternativeNameSummaries": minted.names, "HasAdditionalSubjectAlternativeNames": false,
            "Status": "ISSUED", "Type": "AMAZON_ISSUED", "KeyAlgorithm": key_algorithm(minted.kind),
            "InUse": in_use, "NotBefore": minted.not_before.0 as f64, "NotAfter": minted.not_after.0 as f64,
            "CreatedAt": 1.7e9, "IssuedAt": self.issued as f64, "RenewalEligibility": "ELIGIBLE",
            "CertificateKeyPairOrigin": if self.acme { "ACME" } else { "AWS_MANAGED" },
        })
    }
}

fn elsewhere(arn: &str) -> String {
    format!("{arn}/appsync")
}

fn key_algorithm(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::P256 => "EC_prime256v1",
        KeyKind::P384 => "EC_secp384r1",
        _ => "RSA_2048",
    }
}

fn balancer_arn(region: &str, account: &str, number: usize) -> String {
    format!("arn:aws:elasticloadbalancing:{region}:{account}:loadbalancer/app/web{number}/50dc6c495c0c9188")
}

fn create_account(
    factory: &CertificateFactory,
    plan: &AwsPlan,
    regions: &[&str],
    account: &str,
) -> Result<Account, FleetError> {
    let kinds = [KeyKind::Rsa2048, KeyKind::P256, KeyKind::P384];
    let mut found = Account::default();
    for region in regions {
        let mut stored = Vec::new();
        for number in 0..plan.acm {
            let names = vec![format!("w{number}.{region}.a{account}.example"), format!("x{number}.example")];
            // The last certificate is still pending validation.
            let waits = plan.acm > 2 && number == plan.acm - 1;
            let minted = if waits {
                None
            } else {
                Some(factory.mint(names, kinds[number % 3], 20 + number as i64)?)
            };
            let arn = format!(
                "arn:aws:acm:{region}:{account}:certificate/{number:08x}-0000-4000-8000-000000000000"
            );
            let balancer = number / 2;
            let mut used_by: Vec<_> = (balancer < plan.balancers && minted.is_some())
                .then(|| balancer_arn(region, account, balancer))
                .into_iter()
                .collect();
            if *region == "us-east-1" && number == 0 {
                used_by.push(distribution_arn(account));
            }
            if number == 1 && minted.is_some() {
                used_by.push(domain_arn(region));
            }
            let elsewhere = used_by.is_empty() && number % 7 == 3 && minted.is_some();
            let id = format!("{number}");
            stored.push(StoredCertificate {
                arn,
                id,
                minted,
                acme: number % 5 == 4,
                issued: 1_790_000_000,
                used_by,
                elsewhere,
                tags: super::tags_of(number),
            });
        }
        found.acm.insert((*region).to_owned(), stored);
    }
    for number in 0..plan.iam {
        let minted =
            Some(factory.mint(vec![format!("iam{number}.a{account}.example")], KeyKind::P256, 100)?);
        let arn = format!("arn:aws:iam::{account}:server-certificate/cloudfront/site{number}");
        let used_by = if number == 0 { vec![distribution_arn(account) + "2"] } else { Vec::new() };
        let id = format!("ASCAFLEET{account}{number:04}");
        found.iam.push(StoredCertificate {
            arn,
            id,
            minted,
            acme: false,
            issued: 1_790_000_000,
            used_by,
            elsewhere: false,
            tags: super::tags_of(number),
        });
    }
    Ok(found)
}

fn distribution_arn(account: &str) -> String {
    format!("arn:aws:cloudfront::{account}:distribution/EDFDVBD6EXAMPLE")
}

fn domain_arn(region: &str) -> String {
    format!("arn:aws:apigateway:{region}::/domainnames/api.{region}.example")
}

/// Scope of the request signature.
struct Scope {
    key: String,
    region: String,
    service: String,
}

fn scope(request: &CloudRequest) -> Option<Scope> {
    let header = request.header("authorization")?.strip_prefix("AWS4-HMAC-SHA256 Credential=")?;
    let mut parts = header.split(',').next()?.split('/');
    let (key, _day, region, service) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    Some(Scope { key: key.to_owned(), region: region.to_owned(), service: service.to_owned() })
}

impl Cloud for Aws {
    fn answer(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        let Some(scope) = scope(request) else {
            return json_error(403, "MissingAuthenticationTokenException", "unsigned");
        };
        let mut contents = self.0.lock();
        if scope.service == "sts" {
            return assume_role(&mut contents, &scope, request);
        }
        let account = match account_of(&contents, &scope, request) {
            Ok(account) => account,
            Err(code) => return error(&scope, request, 403, code, "no"),
        };
        if request.expired {
            // The token is permanently invalid: the client must get a new one.
            contents.tokens.remove(&scope.key);
            return error(
                &scope,
                request,
                403,
                expired_code(&scope),
                "The security token included in the request is expired",
            );
        }
        let operation = operation(&scope, request);
        let quota = QUOTAS.iter().find(|(name, _)| *name == operation).map_or(OTHER, |(_, quota)| *quota);
        let owner = format!("{account}/{}", scope.region);
        if let Err(quota) = gate.enter(request, operation, &owner, quota) {
            let (status, code) = throttling(&scope);
            return error(&scope, request, status, code, "Rate exceeded").retry_after(quota);
        }
        if contents.denied.contains(&operation) {
            let (status, code) = denial(&scope);
            return error(&scope, request, status, code, &format!("not authorized to perform: {operation}"));
        }
        contents.answer(&account, &scope, request, gate, operation)
    }
}

fn account_of(contents: &Contents, scope: &Scope, request: &CloudRequest) -> Result<String, &'static str> {
    if scope.key == ACCESS_KEY {
        return contents.accounts.keys().next().cloned().ok_or("AccessDeniedException");
    }
    let token = request.header("x-amz-security-token").unwrap_or_default();
    match contents.tokens.get(&scope.key) {
        Some(known) if known == token => Ok(scope.key.trim_start_matches("ASIA").chars().take(12).collect()),
        _ => Err(expired_code(scope)),
    }
}

fn expired_code(scope: &Scope) -> &'static str {
    match scope.service.as_str() {
        "iam" | "elasticloadbalancing" | "cloudfront" => "ExpiredToken",
        _ => "ExpiredTokenException",
    }
}

fn throttling(scope: &Scope) -> (u16, &'static str) {
    match scope.service.as_str() {
        "acm" => (400, "ThrottlingException"),
        "iam" | "elasticloadbalancing" | "cloudfront" => (400, "Throttling"),
        _ => (429, "TooManyRequestsException"),
    }
}

/// Returns status and code of a denied request. ACM uses status 400, like all AWS services with the JSON protocol.
fn denial(scope: &Scope) -> (u16, &'static str) {
    match scope.service.as_str() {
        "acm" => (400, "AccessDeniedException"),
        "iam" | "elasticloadbalancing" | "cloudfront" => (403, "AccessDenied"),
        _ => (403, "AccessDeniedException"),
    }
}

fn operation(scope: &Scope, request: &CloudRequest) -> &'static str {
    let requested = match scope.service.as_str() {
        "acm" => request
            .header("x-amz-target")
            .unwrap_or_default()
            .rsplit('.')
            .next()
            .unwrap_or_default()
            .to_owned(),
        "iam" | "elasticloadbalancing" => request.form().get("Action").cloned().unwrap_or_default(),
        "cloudfront" => "ListDistributions".to_owned(),
        "apigateway" => "GetDomainNames".to_owned(),
        "account" => "ListRegions".to_owned(),
        _ => String::new(),
    };
    OPERATIONS.into_iter().find(|known| *known == requested).unwrap_or("unknown")
}

/// Names of the simulated operations, each with its own counters.
const OPERATIONS: [&str; 13] = [
    "ListCertificates",
    "GetCertificate",
    "DescribeCertificate",
    "ListTagsForCertificate",
    "ListServerCertificates",
    "GetServerCertificate",
    "ListServerCertificateTags",
    "DescribeLoadBalancers",
    "DescribeListeners",
    "DescribeListenerCertificates",
    "ListDistributions",
    "GetDomainNames",
    "ListRegions",
];

/// Returns a quota without limits for every operation, for tests that are not about rates.
#[must_use]
pub fn unlimited_quotas() -> Vec<(&'static str, Quota)> {
    OPERATIONS.map(|operation| (operation, Quota::default())).into()
}

fn json_error(status: u16, code: &str, message: &str) -> Reply {
    Reply::json(status, &json!({"__type": code, "message": message})).with("x-amzn-errortype", code)
}

/// Formats an error in the format of the service.
fn error(scope: &Scope, _: &CloudRequest, status: u16, code: &str, message: &str) -> Reply {
    match scope.service.as_str() {
        "iam" | "elasticloadbalancing" | "cloudfront" | "sts" => xml_error(status, code, message),
        _ => json_error(status, code, message),
    }
}

fn xml_error(status: u16, code: &str, message: &str) -> Reply {
    let body = format!(
        "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>\
         <RequestId>00000000-0000-0000-0000-000000000000</RequestId></ErrorResponse>"
    );
    Reply::xml(status, body)
}

fn assume_role(contents: &mut Contents, scope: &Scope, request: &CloudRequest) -> Reply {
    let form = request.form();
    let role = form.get("RoleArn").cloned().unwrap_or_default();
    let account = role.split(':').nth(4).unwrap_or_default().to_owned();
    if scope.key != ACCESS_KEY || !contents.accounts.contains_key(&account) {
        return xml_error(403, "AccessDenied", "not authorized to perform: sts:AssumeRole");
    }
    let number = contents.tokens.len();
    let (key, token) = (format!("ASIA{account}{number:04}"), format!("token-{number}"));
    contents.tokens.insert(key.clone(), token.clone());
    let end = super::rfc3339(crate::clock::now().plus(3_600));
    Reply::xml(
        200,
        format!(
            "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult>\
             <AssumedRoleUser><AssumedRoleId>AROA:bulla</AssumedRoleId><Arn>{role}/bulla</Arn></AssumedRoleUser>\
             <Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>\
             <SessionToken>{token}</SessionToken><Expiration>{end}</Expiration></Credentials>\
             </AssumeRoleResult></AssumeRoleResponse>"
        ),
    )
}

impl Contents {
    fn answer(
        &self,
        account: &str,
        scope: &Scope,
        request: &CloudRequest,
        gate: &Gate,
        operation: &str,
    ) -> Reply {
        let Some(own) = self.accounts.get(account) else {
            return json_error(403, "AccessDeniedException", "no");
        };
        let none = Vec::new();
        let acm = own.acm.get(&scope.region).unwrap_or(&none);
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        match operation {
            "ListRegions" => self.list_regions(),
            "ListCertificates" => list_certificates(acm, &body, gate),
            "GetCertificate" => get_certificate(acm, &body),
            "DescribeCertificate" => describe_certificate(acm, &body),
            "ListTagsForCertificate" => list_tags(acm, &body),
            "ListServerCertificateTags" => list_server_tags(&own.iam, request),
            "ListServerCertificates" => list_server_certificates(&own.iam, request, gate),
            "GetServerCertificate" => get_server_certificate(&own.iam, request),
            "DescribeLoadBalancers" => self.balancers(account, scope, request, gate),
            "DescribeListeners" => listeners(acm, request),
            "DescribeListenerCertificates" => listener_certificates(acm, request),
            "ListDistributions" => distributions(own, account),
            "GetDomainNames" => domain_names(acm, &scope.region),
            _ => json_error(400, "UnknownOperationException", "unknown"),
        }
    }

    fn list_regions(&self) -> Reply {
        let regions: Vec<Value> = self
            .regions
            .iter()
            .map(|region| json!({"RegionName": region, "RegionOptStatus": "ENABLED_BY_DEFAULT"}))
            .collect();
        Reply::json(200, &json!({"Regions": regions}))
    }

    fn balancers(&self, account: &str, scope: &Scope, request: &CloudRequest, gate: &Gate) -> Reply {
        let all: Vec<usize> = (0..self.balancers).collect();
        let form = request.form();
        let size = form.get("PageSize").and_then(|size| size.parse().ok());
        let Some((some, next)) =
            page(&all, form.get("Marker").map(String::as_str), size, 400, gate.page_max().min(400))
        else {
            return xml_error(400, "ValidationError", "marker");
        };
        let mut members = String::new();
        for number in some {
            let arn = balancer_arn(&scope.region, account, *number);
            let _ = write!(
                members,
                "<member><LoadBalancerArn>{arn}</LoadBalancerArn><LoadBalancerName>web{number}</LoadBalancerName>\
                 <DNSName>web{number}.{}.elb.example</DNSName></member>",
                scope.region
            );
        }
        elb("DescribeLoadBalancers", "LoadBalancers", &members, next)
    }
}

fn elb(operation: &str, list: &str, members: &str, next: Option<String>) -> Reply {
    let next = next.map(|next| format!("<NextMarker>{next}</NextMarker>")).unwrap_or_default();
    Reply::xml(
        200,
        format!(
            "<{operation}Response xmlns=\"http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/\">\
             <{operation}Result><{list}>{members}</{list}>{next}</{operation}Result></{operation}Response>"
        ),
    )
}

/// Lists certificates like ACM: without key types only RSA certificates with 1,024 and 2,048 bits, and without origins no
/// certificate obtained by ACME.
fn list_certificates(acm: &[StoredCertificate], body: &Value, gate: &Gate) -> Reply {
    let strings = |value: &Value, default: &[&str]| -> Vec<String> {
        let given = value
            .as_array()
            .map(|all| all.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect());
        given.unwrap_or_else(|| default.iter().map(|one| (*one).to_owned()).collect())
    };
    let key_types = strings(&body["Includes"]["keyTypes"], &["RSA_1024", "RSA_2048"]);
    let origins = strings(&body["CertificateKeyPairOrigins"], &["AWS_MANAGED", "CUSTOMER_PROVIDED"]);
    let among = |value: &Value, all: &[String]| {
        value.as_str().is_some_and(|one| all.iter().any(|known| known == one))
    };
    let listed: Vec<Value> = acm
        .iter()
        .map(StoredCertificate::summary)
        .filter(|summary| among(&summary["KeyAlgorithm"], &key_types))
        .filter(|summary| among(&summary["CertificateKeyPairOrigin"], &origins))
        .collect();
    let requested = body["MaxItems"].as_u64().map(|size| size as usize);
    let Some((some, next)) =
        page(&listed, body["NextToken"].as_str(), requested, 100, gate.page_max().min(1_000))
    else {
        return json_error(400, "ValidationException", "The NextToken is invalid.");
    };
    let mut answer = json!({"CertificateSummaryList": some});
    if let Some(next) = next {
        answer["NextToken"] = next.into();
    }
    Reply::json(200, &answer)
}

fn requested_certificate<'a>(acm: &'a [StoredCertificate], body: &Value) -> Option<&'a StoredCertificate> {
    let arn = body["CertificateArn"].as_str()?;
    acm.iter().find(|stored| stored.arn == arn)
}

fn get_certificate(acm: &[StoredCertificate], body: &Value) -> Reply {
    match requested_certificate(acm, body) {
        Some(StoredCertificate { minted: Some(minted), .. }) => Reply::json(
            200,
            &json!({"Certificate": minted.leaf_pem(), "CertificateChain": crate::pem(&minted.above)}),
        ),
        Some(_) => {
            json_error(400, "RequestInProgressException", "The certificate is not in the ISSUED state.")
        }
        None => json_error(400, "ResourceNotFoundException", "Could not find certificate."),
    }
}

fn describe_certificate(acm: &[StoredCertificate], body: &Value) -> Reply {
    let Some(stored) = requested_certificate(acm, body) else {
        return json_error(400, "ResourceNotFoundException", "Could not find certificate.");
    };
    let mut in_use_by = stored.used_by.clone();
    in_use_by.extend(stored.elsewhere.then(|| elsewhere(&stored.arn)));
    let serial = stored.minted.as_ref().map(|minted| minted.serial.clone());
    Reply::json(
        200,
        &json!({"Certificate": {"CertificateArn": stored.arn, "InUseBy": in_use_by, "Serial": serial,
            "Status": "ISSUED"}}),
    )
}

fn list_tags(acm: &[StoredCertificate], body: &Value) -> Reply {
    let Some(stored) = requested_certificate(acm, body) else {
        return json_error(400, "ResourceNotFoundException", "Could not find certificate.");
    };
    // ACM omits the value of a tag that has none.
    let tags: Vec<Value> = stored
        .tags
        .iter()
        .map(
            |(key, value)| {
                if value.is_empty() { json!({"Key": key}) } else { json!({"Key": key, "Value": value}) }
            },
        )
        .collect();
    Reply::json(200, &json!({"Tags": tags}))
}

fn list_server_tags(iam: &[StoredCertificate], request: &CloudRequest) -> Reply {
    let name = request.form().get("ServerCertificateName").cloned().unwrap_or_default();
    let Some(stored) = iam.iter().find(|stored| stored.arn.ends_with(&format!("/{name}"))) else {
        return xml_error(404, "NoSuchEntity", "not found");
    };
    let tag = |(key, value)| format!("<member><Key>{key}</Key><Value>{value}</Value></member>");
    let tags: String = stored.tags.iter().map(tag).collect();
    iam_reply("ListServerCertificateTags", &format!("<Tags>{tags}</Tags><IsTruncated>false</IsTruncated>"))
}

fn list_server_certificates(iam: &[StoredCertificate], request: &CloudRequest, gate: &Gate) -> Reply {
    let form = request.form();
    let size = form.get("MaxItems").and_then(|size| size.parse().ok());
    let Some((some, next)) = page(iam, form.get("Marker").map(String::as_str), size, 100, gate.page_max())
    else {
        return xml_error(400, "ValidationError", "marker");
    };
    let members: String =
        some.iter().map(|stored| format!("<member>{}</member>", metadata(stored))).collect();
    let next = match next {
        Some(next) => format!("<IsTruncated>true</IsTruncated><Marker>{next}</Marker>"),
        None => "<IsTruncated>false</IsTruncated>".to_owned(),
    };
    iam_reply(
        "ListServerCertificates",
        &format!("<ServerCertificateMetadataList>{members}</ServerCertificateMetadataList>{next}"),
    )
}

fn iam_reply(operation: &str, result: &str) -> Reply {
    Reply::xml(
        200,
        format!(
            "<{operation}Response xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><{operation}Result>{result}\
             </{operation}Result></{operation}Response>"
        ),
    )
}

fn metadata(stored: &StoredCertificate) -> String {
    let name = stored.arn.rsplit('/').next().unwrap_or_default();
    let end = stored.minted.as_ref().map(|minted| super::rfc3339(minted.not_after)).unwrap_or_default();
    format!(
        "<Path>/cloudfront/</Path><ServerCertificateName>{name}</ServerCertificateName>\
         <ServerCertificateId>{}</ServerCertificateId><Arn>{}</Arn><UploadDate>2026-10-01T00:00:00Z</UploadDate>\
         <Expiration>{end}</Expiration>",
        stored.id, stored.arn
    )
}

fn get_server_certificate(iam: &[StoredCertificate], request: &CloudRequest) -> Reply {
    let name = request.form().get("ServerCertificateName").cloned().unwrap_or_default();
    let found = iam.iter().find(|stored| stored.arn.ends_with(&format!("/{name}")));
    let Some((stored, minted)) = found.and_then(|stored| Some((stored, stored.minted.as_ref()?))) else {
        return xml_error(404, "NoSuchEntity", "not found");
    };
    iam_reply(
        "GetServerCertificate",
        &format!(
            "<ServerCertificate><ServerCertificateMetadata>{}</ServerCertificateMetadata>\
             <CertificateBody>{}</CertificateBody><CertificateChain>{}</CertificateChain></ServerCertificate>",
            metadata(stored),
            minted.leaf_pem(),
            crate::pem(&minted.above)
        ),
    )
}

fn listeners(acm: &[StoredCertificate], request: &CloudRequest) -> Reply {
    let balancer = request.form().get("LoadBalancerArn").cloned().unwrap_or_default();
    let first = acm.iter().find(|stored| stored.used_by.contains(&balancer));
    let members = first.map(|stored| {
        format!(
            "<member><ListenerArn>{balancer}/listener</ListenerArn><Port>443</Port><Protocol>HTTPS</Protocol>\
             <Certificates><member><CertificateArn>{}</CertificateArn></member></Certificates></member>",
            stored.arn
        )
    });
    let clear = format!("<member><ListenerArn>{balancer}/clear</ListenerArn><Port>80</Port></member>");
    elb("DescribeListeners", "Listeners", &(members.unwrap_or_default() + &clear), None)
}

fn listener_certificates(acm: &[StoredCertificate], request: &CloudRequest) -> Reply {
    let listener = request.form().get("ListenerArn").cloned().unwrap_or_default();
    let balancer = listener.trim_end_matches("/listener").to_owned();
    let used = acm.iter().filter(|stored| stored.used_by.contains(&balancer));
    let members: String = used
        .map(|stored| format!("<member><CertificateArn>{}</CertificateArn></member>", stored.arn))
        .collect();
    elb("DescribeListenerCertificates", "Certificates", &members, None)
}

fn distributions(own: &Account, account: &str) -> Reply {
    let acm = own
        .acm
        .get("us-east-1")
        .and_then(|stored| stored.first())
        .filter(|stored| !stored.used_by.is_empty());
    let mut items = String::new();
    let item = |arn: &str, alias: &str, certificate: &str| {
        format!(
            "<DistributionSummary><Id>E1</Id><ARN>{arn}</ARN><Status>Deployed</Status>\
             <LastModifiedTime>2026-10-01T00:00:00Z</LastModifiedTime><DomainName>d1.cloudfront.example</DomainName>\
             <Aliases><Quantity>1</Quantity><Items><CNAME>{alias}</CNAME></Items></Aliases>\
             <ViewerCertificate>{certificate}</ViewerCertificate></DistributionSummary>"
        )
    };
    if let Some(stored) = acm {
        let certificate = format!("<ACMCertificateArn>{}</ACMCertificateArn>", stored.arn);
        items += &item(&distribution_arn(account), "www.example", &certificate);
    }
    if let Some(stored) = own.iam.first() {
        let certificate = format!("<IAMCertificateId>{}</IAMCertificateId>", stored.id);
        items += &item(&(distribution_arn(account) + "2"), "old.example", &certificate);
    }
    Reply::xml(
        200,
        format!(
            "<DistributionList xmlns=\"http://cloudfront.amazonaws.com/doc/2020-05-31/\"><Marker></Marker>\
             <MaxItems>100</MaxItems><IsTruncated>false</IsTruncated><Quantity>2</Quantity><Items>{items}</Items>\
             </DistributionList>"
        ),
    )
}

fn domain_names(acm: &[StoredCertificate], region: &str) -> Reply {
    let used = acm.iter().filter(|stored| stored.used_by.contains(&domain_arn(region)));
    let items: Vec<Value> = used
        .map(|stored| {
            json!({"domainName": format!("api.{region}.example"), "domainNameArn": domain_arn(region),
                "regionalCertificateArn": stored.arn})
        })
        .collect();
    Reply::json(200, &json!({"item": items}))
}
