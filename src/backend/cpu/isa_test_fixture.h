// Tests that run once per instruction set of this machine.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/isa.h"

namespace longspan::backend::cpu {

inline std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16})
    if (IsaSupported(isa)) isas.push_back(isa);
  return isas;
}

// Makes the parameter the active instruction set for the test.
class IsaTest : public testing::TestWithParam<Isa> {
 protected:
  IsaTest() : before_(ActiveIsa()) { SetIsaForTest(GetParam()); }
  ~IsaTest() override { SetIsaForTest(before_); }

 private:
  Isa before_;
};

inline std::string TestName(const testing::TestParamInfo<Isa>& info) {
  return std::string(IsaName(info.param));
}

}  // namespace longspan::backend::cpu
