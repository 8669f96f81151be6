//! The console against an API whose every answer is hostile, and against forms that other sites send.

mod exports;
mod forms;
mod hostile_api;
mod pages;
mod redirects;
