#include "comm/file_descriptor.h"

#include <unistd.h>

namespace longspan::comm {

void FileDescriptor::Reset() {
  // Linux frees the number even when close reports an error; a second try could close someone
  // else's.
  if (fd_ >= 0) ::close(Release());
}

}  // namespace longspan::comm
