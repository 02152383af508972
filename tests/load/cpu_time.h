// What threads have computed: a busy machine takes time from them, but adds hardly any to this.
#pragma once

#include <map>
#include <string>
#include <sys/types.h>

namespace longspan::testing {

// Seconds of the process' living threads by their names, the first one's by "main". Empty where the
// kernel does not count them.
std::map<std::string, double> CpuSecondsOfThreads(pid_t process);

// What `after` has beyond `before`, of all threads or of one name.
double CpuSeconds(const std::map<std::string, double>& before,
                  const std::map<std::string, double>& after);
double CpuSeconds(const std::map<std::string, double>& before,
                  const std::map<std::string, double>& after, const std::string& name);

}  // namespace longspan::testing
