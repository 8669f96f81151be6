//! Alerts, their channels and rules, and undelivered messages.

use alerts::tables::{AlertDeliveryRow, AlertDocument, AlertRow};
use alerts::{AlertError, Alerts, ChannelView, NewChannel, Rule, Settings, Silence};
use api::alerts::{
    AlertView, ChannelBody, ChannelDocument, CreatedId, DeliveryView, RuleBody, RuleView, SilenceBody,
    StateQuery,
};
use axum::extract::State as With;
use coded::Named;
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::Store;
use store::StoreError;
use store::states::{AlertState, DeliveryState};
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time::{parsed, shown};

pub(crate) fn routes() -> Api {
    Api::area("alerts")
        .route(Permission::AlertRead, routes!(list))
        .route(Permission::AlertRead, routes!(get_one))
        .route(Permission::AlertManage, routes!(acknowledge))
        .route(Permission::AlertManage, routes!(resolve))
        .route(Permission::AlertRead, routes!(list_deliveries))
        .route(Permission::AlertManage, routes!(requeue))
        .route(Permission::AlertRead, routes!(list_channels))
        .route(Permission::AlertManage, routes!(create_channel))
        .route(Permission::AlertRead, routes!(get_channel))
        .route(Permission::AlertManage, routes!(update_channel))
        .route(Permission::AlertManage, routes!(delete_channel))
        .route(Permission::AlertManage, routes!(test_channel))
        .route(Permission::AlertRead, routes!(list_rules))
        .route(Permission::AlertManage, routes!(create_rule))
        .route(Permission::AlertRead, routes!(get_rule))
        .route(Permission::AlertManage, routes!(put_rule))
        .route(Permission::AlertManage, routes!(delete_rule))
        .route(Permission::AlertRead, routes!(list_silences))
        .route(Permission::AlertManage, routes!(create_silence))
        .route(Permission::AlertManage, routes!(delete_silence))
        .route(Permission::AlertRead, routes!(get_settings))
        .route(Permission::AlertManage, routes!(put_settings))
}

impl From<AlertError> for Problem {
    fn from(error: AlertError) -> Self {
        match error {
            AlertError::Store(error) => error.into(),
            AlertError::Channel(error) => Self::unprocessable(error),
            AlertError::Unknown(what) => Self::not_found(what),
            AlertError::Invalid(why) => Self::unprocessable(why),
            AlertError::Sealed(_) => Self::conflict(error),
        }
    }
}

fn alert_view(row: AlertRow) -> AlertView {
    AlertView {
        id: row.id,
        severity: row.severity.to_string(),
        state: row.state.to_string(),
        attributes: serde_json::from_str(&row.attributes).unwrap_or_default(),
        kind: row.kind,
        subject: row.subject,
        title: row.title,
        silenced_by: row.silenced_by,
        first_at: shown(row.first_at_us),
        last_at: shown(row.last_at_us),
        count: row.count,
        acknowledged_by: row.acknowledged_by,
        acknowledged_at: row.acknowledged_at_us.map(shown),
        resolved_at: row.resolved_at_us.map(shown),
        deliveries: None,
    }
}

fn delivery_view(row: AlertDeliveryRow) -> DeliveryView {
    DeliveryView {
        id: row.id,
        channel: row.channel,
        reason: row.reason.to_string(),
        state: row.state.to_string(),
        attempts: row.attempts,
        next_at: (row.state == DeliveryState::Waiting).then(|| shown(row.next_at_us)),
        last_error: row.last_error,
        created_at: shown(row.created_at_us),
        done_at: row.done_at_us.map(shown),
    }
}

fn state_of<T: Named>(given: Option<&str>) -> Result<T, Problem> {
    let given = given.unwrap_or(T::NAMES[0]);
    let found = T::ALL.iter().copied().find(|state| state.name() == given);
    found.ok_or_else(|| Problem::bad_request(format_args!("state must be one of {}", T::NAMES.join(", "))))
}

/// Lists alerts, newest first.
#[utoipa::path(get, path = "/api/v1/alerts", operation_id = "listAlerts", params(PageQuery, StateQuery),
    responses((status = 200, body = Listing<AlertView>)))]
async fn list(
    With(store): With<Store>,
    Query(of): Query<StateQuery>,
    paging: Paging,
) -> Result<Json<Listing<AlertView>>, Problem> {
    let wanted: AlertState = state_of(of.state.as_deref())?;
    let page = alerts::tables::Alerts::of(&store).page(wanted, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, alert_view)))
}

/// Shows an alert with its messages.
#[utoipa::path(get, path = "/api/v1/alerts/{id}", operation_id = "getAlert", params(("id" = Uuid, Path)),
    responses((status = 200, body = AlertView)))]
async fn get_one(With(store): With<Store>, Path(id): Path<Uuid>) -> Result<Json<AlertView>, Problem> {
    let alert = alerts::tables::Alerts::of(&store)
        .get(id)
        .await?
        .ok_or_else(|| Problem::not_found(format_args!("alert {id}")))?;
    let deliveries = alerts::tables::Alerts::of(&store).deliveries_of(alert.row).await?;
    let deliveries = deliveries.into_iter().map(delivery_view).collect();
    Ok(Json(AlertView { deliveries: Some(deliveries), ..alert_view(alert) }))
}

/// Acknowledges an alert, so that it is not escalated.
#[utoipa::path(post, path = "/api/v1/alerts/{id}/acknowledge", operation_id = "acknowledgeAlert",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn acknowledge(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.acknowledge(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Resolves an alert manually.
#[utoipa::path(post, path = "/api/v1/alerts/{id}/resolve", operation_id = "resolveAlert",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn resolve(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.resolve(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists messages by state, newest first; `dead` messages have used up their attempts.
#[utoipa::path(get, path = "/api/v1/alert-deliveries", operation_id = "listAlertDeliveries",
    params(PageQuery, StateQuery), responses((status = 200, body = Listing<DeliveryView>)))]
async fn list_deliveries(
    With(store): With<Store>,
    Query(of): Query<StateQuery>,
    paging: Paging,
) -> Result<Json<Listing<DeliveryView>>, Problem> {
    let wanted: DeliveryState = state_of(of.state.as_deref())?;
    let page =
        alerts::tables::Alerts::of(&store).deliveries(wanted, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, delivery_view)))
}

/// Retries a message that has used up its attempts.
#[utoipa::path(post, path = "/api/v1/alert-deliveries/{id}/requeue", operation_id = "requeueAlertDelivery",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn requeue(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.requeue(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn channel_document(view: ChannelView) -> Revision<ChannelDocument> {
    Revision(view.row.revision, channel_document_plain(view))
}

fn channel_document_plain(view: ChannelView) -> ChannelDocument {
    let ChannelView { row, config } = view;
    ChannelDocument {
        id: row.id,
        name: row.name,
        kind: row.kind,
        config,
        enabled: row.enabled,
        last_success_at: row.last_success_at_us.map(shown),
        last_error_at: row.last_error_at_us.map(shown),
        last_error: row.last_error,
    }
}

fn new_channel(body: ChannelBody) -> Result<NewChannel, Problem> {
    Ok(NewChannel { name: name(body.name)?, config: body.config, enabled: body.enabled })
}

/// Maximum characters of a name.
const NAME_MAX: usize = 128;

fn name(text: String) -> Result<String, Problem> {
    let good =
        !text.trim().is_empty() && text.chars().count() <= NAME_MAX && !text.contains(char::is_control);
    good.then_some(text).ok_or_else(|| {
        Problem::unprocessable(format_args!(
            "a name must have 1 to {NAME_MAX} characters and no control characters"
        ))
    })
}

/// Lists the notification channels.
#[utoipa::path(get, path = "/api/v1/alert-channels", operation_id = "listAlertChannels",
    responses((status = 200, body = Listing<ChannelDocument>)))]
async fn list_channels(
    Component(alerts): Component<Alerts>,
) -> Result<Json<Listing<ChannelDocument>>, Problem> {
    let all = alerts.channels().await?;
    Ok(Json(Listing::whole(all.into_iter().map(channel_document_plain).collect())))
}

/// Creates a notification channel.
#[utoipa::path(post, path = "/api/v1/alert-channels", operation_id = "createAlertChannel",
    request_body = ChannelBody, responses((status = 201, body = ChannelDocument)))]
async fn create_channel(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Json(body): Json<ChannelBody>,
) -> Result<(StatusCode, Revision<ChannelDocument>), Problem> {
    let made = alerts.put_channel(None, new_channel(body)?, caller.actor()).await;
    Ok((StatusCode::CREATED, channel_document(made.map_err(taken)?)))
}

fn taken(error: AlertError) -> Problem {
    match error {
        AlertError::Store(StoreError::Conflict { .. }) => {
            Problem::conflict("this name is already in use: choose another")
        }
        other => other.into(),
    }
}

/// Shows a notification channel.
#[utoipa::path(get, path = "/api/v1/alert-channels/{id}", operation_id = "getAlertChannel",
    params(("id" = Uuid, Path)), responses((status = 200, body = ChannelDocument)))]
async fn get_channel(
    Component(alerts): Component<Alerts>,
    Path(id): Path<Uuid>,
) -> Result<Revision<ChannelDocument>, Problem> {
    Ok(channel_document(alerts.channel(id).await?))
}

/// Replaces a notification channel. The request must contain its secrets again.
#[utoipa::path(put, path = "/api/v1/alert-channels/{id}", operation_id = "updateAlertChannel",
    params(("id" = Uuid, Path)), request_body = ChannelBody, responses((status = 200, body = ChannelDocument)))]
async fn update_channel(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
    Json(body): Json<ChannelBody>,
) -> Result<Revision<ChannelDocument>, Problem> {
    let before = alerts.channel(id).await?.row.revision;
    if_match.check(before)?;
    let changed = alerts.put_channel(Some((id, before)), new_channel(body)?, caller.actor()).await;
    Ok(channel_document(changed.map_err(taken)?))
}

/// Deletes a channel. Its pending messages fail.
#[utoipa::path(delete, path = "/api/v1/alert-channels/{id}", operation_id = "deleteAlertChannel",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn delete_channel(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    if_match.check(alerts.channel(id).await?.row.revision)?;
    alerts.delete_channel(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends a test message to a channel, once, and reports whether the channel accepted it.
#[utoipa::path(post, path = "/api/v1/alert-channels/{id}/test", operation_id = "testAlertChannel",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn test_channel(
    Component(alerts): Component<Alerts>,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.test_channel(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn rule_view(row: AlertDocument) -> RuleView {
    RuleView {
        id: row.id,
        name: row.name,
        rule: serde_json::from_str(&row.body).unwrap_or_default(),
        updated_by: row.updated_by,
        updated_at: shown(row.updated_at_us),
    }
}

/// Parses `value`, the member `member` of a request body, as the domain type `T`.
fn part<T: DeserializeOwned>(member: &str, value: Value) -> Result<T, Problem> {
    T::deserialize(value).map_err(|error| Problem::unprocessable(format_args!("{member}: {error}")))
}

/// Lists the alert rules.
#[utoipa::path(get, path = "/api/v1/alert-rules", operation_id = "listAlertRules",
    responses((status = 200, body = Listing<RuleView>)))]
async fn list_rules(Component(alerts): Component<Alerts>) -> Result<Json<Listing<RuleView>>, Problem> {
    let all = alerts.rules().await?;
    Ok(Json(Listing::whole(all.into_iter().map(rule_view).collect())))
}

/// Creates an alert rule.
#[utoipa::path(post, path = "/api/v1/alert-rules", operation_id = "createAlertRule", request_body = RuleBody,
    responses((status = 201, body = CreatedId)))]
async fn create_rule(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Json(body): Json<RuleBody>,
) -> Result<(StatusCode, Json<CreatedId>), Problem> {
    let (name, rule) = (name(body.name)?, part::<Rule>("rule", body.rule)?);
    let id = alerts.put_rule(None, &name, &rule, caller.actor()).await.map_err(taken)?;
    Ok((StatusCode::CREATED, Json(CreatedId { id })))
}

/// Shows an alert rule.
#[utoipa::path(get, path = "/api/v1/alert-rules/{id}", operation_id = "getAlertRule", params(("id" = Uuid, Path)),
    responses((status = 200, body = RuleView)))]
async fn get_rule(
    Component(alerts): Component<Alerts>,
    Path(id): Path<Uuid>,
) -> Result<Json<RuleView>, Problem> {
    let found = alerts.rules().await?.into_iter().find(|rule| rule.id == id);
    found.map(rule_view).map(Json).ok_or_else(|| Problem::not_found(format_args!("rule {id}")))
}

/// Replaces an alert rule.
#[utoipa::path(put, path = "/api/v1/alert-rules/{id}", operation_id = "updateAlertRule",
    params(("id" = Uuid, Path)), request_body = RuleBody, responses((status = 200, body = CreatedId)))]
async fn put_rule(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<RuleBody>,
) -> Result<Json<CreatedId>, Problem> {
    if !alerts.rules().await?.iter().any(|rule| rule.id == id) {
        return Err(Problem::not_found(format_args!("rule {id}")));
    }
    let (name, rule) = (name(body.name)?, part::<Rule>("rule", body.rule)?);
    alerts.put_rule(Some(id), &name, &rule, caller.actor()).await.map_err(taken)?;
    Ok(Json(CreatedId { id }))
}

/// Deletes an alert rule.
#[utoipa::path(delete, path = "/api/v1/alert-rules/{id}", operation_id = "deleteAlertRule",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn delete_rule(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.delete_document("rule", id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the silences.
#[utoipa::path(get, path = "/api/v1/alert-silences", operation_id = "listAlertSilences",
    responses((status = 200, body = Listing<RuleView>)))]
async fn list_silences(Component(alerts): Component<Alerts>) -> Result<Json<Listing<RuleView>>, Problem> {
    let all = alerts.silences().await?;
    Ok(Json(Listing::whole(all.into_iter().map(rule_view).collect())))
}

/// Creates a silence: matching alerts are raised and listed without notifications.
#[utoipa::path(post, path = "/api/v1/alert-silences", operation_id = "createAlertSilence",
    request_body = SilenceBody, responses((status = 201, body = CreatedId)))]
async fn create_silence(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Json(body): Json<SilenceBody>,
) -> Result<(StatusCode, Json<CreatedId>), Problem> {
    let silence = Silence {
        when: part("when", body.when)?,
        from_us: body.from.as_deref().map(parsed).transpose()?.unwrap_or(0),
        until_us: parsed(&body.until)?,
        reason: body.reason,
    };
    let id = alerts.put_silence(&silence, caller.actor()).await?;
    Ok((StatusCode::CREATED, Json(CreatedId { id })))
}

/// Ends a silence.
#[utoipa::path(delete, path = "/api/v1/alert-silences/{id}", operation_id = "deleteAlertSilence",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn delete_silence(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.delete_document("silence", id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows the alert settings: thresholds, the hour of the digest, the retention of alerts.
#[utoipa::path(get, path = "/api/v1/alert-settings", operation_id = "getAlertSettings",
    responses((status = 200, body = Object)))]
async fn get_settings(Component(alerts): Component<Alerts>) -> Result<Json<Settings>, Problem> {
    Ok(Json(alerts.settings().await?))
}

/// Changes the alert settings.
#[utoipa::path(put, path = "/api/v1/alert-settings", operation_id = "updateAlertSettings",
    request_body = Object, responses((status = 200, body = Object)))]
async fn put_settings(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Json(settings): Json<Settings>,
) -> Result<Json<Settings>, Problem> {
    alerts.put_settings(settings.clone(), caller.actor()).await?;
    Ok(Json(settings))
}
