//! Where each of the console's pages is.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;

use crate::app::App;
use crate::{guard, pages};

/// Where everything is.
pub(crate) fn router(app: Arc<App>) -> Router {
    use pages::{doctor, link, link_form, links, overview, queues, sign_in, transfer};
    Router::new()
        .route("/", get(overview::page))
        .route("/live/overview", get(overview::live))
        .route("/links", get(links::page).post(links::bulk))
        .route("/links/new", get(link_form::new).post(link_form::create))
        .route("/links/import", get(transfer::page).post(transfer::import))
        .route("/links/export", get(transfer::export))
        .route("/link/{code}", get(link::page))
        .route("/link/{code}/edit", get(link_form::edit).post(link_form::save))
        .route("/link/{code}/delete", get(link::ask_delete).post(link::delete))
        .route("/link/{code}/qr.svg", get(link::qr_svg))
        .route("/link/{code}/qr.png", get(link::qr_png))
        .route("/link/{code}/clicks.csv", get(link::csv))
        .route("/doctor", get(doctor::page))
        .route("/queues", get(queues::page))
        .route("/live/queues", get(queues::live))
        .route("/sign-in", get(sign_in::page).post(sign_in::sign_in))
        .route("/sign-out", axum::routing::post(sign_in::sign_out))
        .fallback(pages::missing)
        .method_not_allowed_fallback(pages::wrong_method)
        .layer(from_fn_with_state(Arc::clone(&app), guard::guard))
        .with_state(app)
}

#[cfg(test)]
mod tests;
