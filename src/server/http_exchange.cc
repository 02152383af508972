#include "server/http_exchange.h"

#include <boost/asio/post.hpp>

namespace longspan::server {

void SessionExchange::Respond(HttpResponse response) {
  boost::asio::post(executor_,
                    [self = shared_from_this(), response = std::move(response)]() mutable {
                      if (self->session_ == nullptr) return;
                      self->session_->writer().Respond(std::move(response));
                      self->session_->Flush();
                    });
}

void SessionExchange::Attach(std::shared_ptr<ResponseSource> source) {
  boost::asio::post(executor_, [self = shared_from_this(), source = std::move(source)]() mutable {
    if (self->session_ == nullptr || self->gone()) return source->OnGone();
    self->source_ = std::move(source);
    self->Pull();
  });
}

void SessionExchange::Wake() {
  if (wake_pending_.exchange(true)) return;
  boost::asio::post(executor_, [self = shared_from_this()] {
    self->wake_pending_.store(false);
    self->Pull();
  });
}

void SessionExchange::Pull() {
  if (session_ == nullptr || source_ == nullptr || gone()) return;
  source_->Pull(session_->writer());
  session_->Flush();
}

void SessionExchange::Silence() {
  if (source_ == nullptr) return;
  source_->OnSilence(session_->writer());
  session_->Flush();
}

void SessionExchange::MarkGone() {
  gone_.store(true);
  if (source_ != nullptr) source_->OnGone();
}

void SessionExchange::Detach() {
  session_.reset();
  source_.reset();
}

}  // namespace longspan::server
