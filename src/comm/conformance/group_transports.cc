#include "comm/conformance/transports.h"

namespace longspan::comm {

std::vector<Transport> GroupTransports() { return LinkTransports(); }

}  // namespace longspan::comm
