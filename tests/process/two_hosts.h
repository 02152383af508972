// Two network namespaces with a cable between them: as two hosts see each other.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace longspan::testing {

// The namespaces have no names and belong to two idle processes, which die with this one: nothing
// is left, however the test ends.
class TwoHosts {
 public:
  // Both directions of the cable have a rate of 1 Gbit/s.
  TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  ~TwoHosts();

  // Why there are none here; empty where there are.
  const std::string& missing() const { return missing_; }
  // The cable takes 5 ms. Else something else must stand for that.
  bool delayed() const { return delayed_; }

  static const char* Address(int host) { return host == 0 ? "10.77.0.1" : "10.77.0.2"; }
  // A command line that runs `program` on a host, without the program's own arguments: its first
  // word is the file to run.
  std::vector<std::string> On(int host, const std::string& program) const;

 private:
  bool Run(int host, const std::vector<std::string>& command);
  void SetUp();

  std::optional<pid_t> hosts_[2];
  std::string missing_;
  bool delayed_ = false;
};

}  // namespace longspan::testing
