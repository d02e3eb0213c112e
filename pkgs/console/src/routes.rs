//! The paths of the console's pages.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, head, post};

use crate::app::App;
use crate::single_sign_on::{BACK, BEGIN};
use crate::{guard, pages};

/// The router for all pages.
pub(crate) fn router(app: Arc<App>) -> Router {
    use pages::{
        access, doctor, files, link, link_form, links, overview, profile, queues, service_keys, sessions,
        sign_in, transfer, upload, user, user_form, users,
    };
    Router::new()
        .route("/", get(overview::page))
        .route("/live/overview", get(overview::live))
        .route("/links", get(links::page).post(links::bulk))
        .route("/links/new", get(link_form::new).post(link_form::create))
        .route("/links/import", get(transfer::page).post(transfer::import))
        .route("/links/import/{id}", get(transfer::one))
        .route("/live/import/{id}", get(transfer::live))
        .route("/links/export", get(transfer::export))
        .route("/link/{code}", get(link::page))
        .route("/link/{code}/edit", get(link_form::edit).post(link_form::save))
        .route("/link/{code}/delete", get(link::ask_delete).post(link::delete))
        .route("/link/{code}/qr.svg", get(link::qr_svg))
        .route("/link/{code}/qr.png", get(link::qr_png))
        .route("/link/{code}/clicks.csv", get(link::csv))
        .route("/users", get(users::page))
        .route("/users/new", get(user_form::new).post(user_form::create))
        .route("/user/{id}", get(user::page))
        .route("/user/{id}/edit", get(user_form::edit).post(user_form::save))
        .route("/user/{id}/delete", get(user::ask_delete).post(user::delete))
        .route("/files", get(files::page))
        .route("/files/rename", get(files::ask_rename).post(files::rename))
        .route("/files/delete", get(files::ask_delete).post(files::delete))
        .route("/files/directory", post(files::directory))
        .route("/files/upload", post(upload::form))
        .route("/files/end", post(upload::end))
        .route("/files/uploads", post(upload::begin))
        .route("/files/uploads/{id}", head(upload::go_on).patch(upload::go_on).delete(upload::go_on))
        .route("/doctor", get(doctor::page))
        .route("/queues", get(queues::page).post(queues::place))
        .route("/live/queues", get(queues::live))
        .route("/profile", get(profile::page).post(profile::take))
        .route("/profile/{number}", get(profile::one))
        .route("/profile/{number}/svg", get(profile::svg))
        .route("/profile/{number}/folded", get(profile::folded))
        .route("/access", get(access::page))
        .route("/access/key", get(access::key).post(access::add_key))
        .route("/access/key/drop", post(access::drop_key))
        .route("/access/end", post(sessions::end))
        .route("/access/keys/{service}/new", get(service_keys::new).post(service_keys::create))
        .route("/access/keys/{service}/{id}/revoke", get(service_keys::ask_revoke).post(service_keys::revoke))
        .route("/sign-in", get(sign_in::page).post(sign_in::sign_in))
        .route(BEGIN, post(sign_in::depart))
        .route(BACK, get(sign_in::arrive))
        .route("/sign-out", post(sign_in::sign_out))
        .fallback(pages::missing)
        .method_not_allowed_fallback(pages::wrong_method)
        .layer(from_fn_with_state(Arc::clone(&app), guard::guard))
        .with_state(app)
}

#[cfg(test)]
mod tests;
