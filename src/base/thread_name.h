// Names for what lists the threads of a process.
#pragma once

#include <pthread.h>

namespace longspan::base {

// Names the calling thread; at most 15 characters.
inline void NameThisThread(const char* name) { (void)pthread_setname_np(pthread_self(), name); }

}  // namespace longspan::base
