"""Shows on small trees that each rule of tools/check_includes.py can fail, and what passes."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_includes  # noqa: E402  (the path is set just above)

HEADER = "#pragma once\n"


class CheckIncludesTest(unittest.TestCase):
    def findings(self, files):
        """The findings, as text, in a tree of these files (path -> content)."""
        with tempfile.TemporaryDirectory() as folder:
            for path, content in files.items():
                file = pathlib.Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)
            return [str(finding) for finding in check_includes.check_tree(folder)]

    def include(self, path, header):
        """The findings of a file that includes one header, which exists."""
        folder = "" if header.startswith("apps/") else "src/"
        return self.findings({path: f'{HEADER}#include "{header}"\n', folder + header: HEADER})

    def test_a_room_includes_itself_and_lower_rooms(self):
        self.assertEqual(self.include("src/kv/page.h", "kv/pool.h"), [])
        self.assertEqual(self.include("src/engine/leader.cc", "base/status.h"), [])
        self.assertEqual(self.include("apps/main.cc", "engine/leader.h"), [])
        self.assertEqual(self.include("apps/main.cc", "apps/flags.h"), [])

    def test_a_higher_room_is_refused(self):
        self.assertEqual(
            self.include("src/kv/page.cc", "engine/leader.h"),
            ["src/kv/page.cc:2: kv/ (level 2) may not include engine/ (level 6)"],
        )
        self.assertEqual(len(self.include("src/engine/leader.cc", "apps/flags.h")), 1)
        self.assertEqual(len(self.include("src/engine/leader_test.cc", "server/http.h")), 1)

    def test_on_one_level_only_plan_includes_kv(self):
        self.assertEqual(self.include("src/plan/step.h", "kv/page.h"), [])
        self.assertEqual(len(self.include("src/kv/page.h", "plan/step.h")), 1)
        self.assertEqual(len(self.include("src/text/bpe.h", "checkpoint/file.h")), 1)

    def test_backends_and_models_do_not_see_each_other(self):
        self.assertEqual(self.include("src/backend/cpu/gemm.cc", "backend/cpu/pack.h"), [])
        other_backend = self.include("src/backend/cpu/gemm.cc", "backend/reference/gemm.h")
        self.assertEqual(len(other_backend), 1)
        self.assertEqual(len(self.include("src/backend/cpu/gemm.cc", "model/mlp.h")), 1)
        self.assertEqual(len(self.include("src/model/mlp.cc", "backend/cpu/gemm.h")), 1)

    def test_unknown_folders_and_missing_headers_are_refused(self):
        self.assertEqual(len(self.findings({"src/misc/a.cc": ""})), 1)
        self.assertEqual(len(self.findings({"src/loose.cc": ""})), 1)
        self.assertEqual(len(self.include("src/engine/a.cc", "misc/b.h")), 2)
        beside = {"src/kv/a.cc": '#include "b.h"\n', "src/kv/b.h": HEADER}
        self.assertEqual(len(self.findings(beside)), 1)
        self.assertEqual(len(self.findings({"tests/a.cc": '#include "b.h"\n'})), 1)

    def test_tests_may_include_every_room(self):
        self.assertEqual(self.include("tests/parity_test.cc", "backend/cpu/gemm.h"), [])

    def test_only_tests_use_the_test_support(self):
        code = '#include "tests/support/values.h"\n'
        self.assertEqual(self.findings({"src/kv/a_test.cc": code}), [])
        self.assertEqual(len(self.findings({"src/kv/a.cc": code})), 1)

    def test_only_the_wiring_and_tests_name_backends_and_transports(self):
        self.assertEqual(self.include("apps/wiring.cc", "backend/cpu/backend.h"), [])
        self.assertEqual(self.include("apps/main.cc", "comm/transport.h"), [])
        self.assertEqual(self.include("src/runtime/a_test.cc", "comm/tcp/transport.h"), [])
        self.assertEqual(self.include("src/comm/conformance/all.cc", "comm/tcp/transport.h"), [])
        self.assertEqual(len(self.include("apps/main.cc", "backend/cpu/backend.h")), 1)
        self.assertEqual(len(self.include("src/runtime/a.cc", "comm/tcp/transport.h")), 1)
        self.assertEqual(len(self.include("src/comm/fault/a.cc", "comm/tcp/transport.h")), 1)

    def test_pure_rooms_have_no_thread_clock_or_file(self):
        for header in ("thread", "mutex", "chrono", "fstream", "filesystem", "sys/mman.h"):
            code = f"#include <{header}>\n"
            self.assertEqual(len(self.findings({"src/plan/a.cc": code})), 1, header)
            self.assertEqual(self.findings({"src/plan/a_test.cc": code}), [])
            self.assertEqual(self.findings({"src/runtime/a.cc": code}), [])
        self.assertEqual(len(self.include("src/kv/a.cc", "base/clock.h")), 1)

    def test_conditions_on_devices_stay_in_their_rooms(self):
        for condition in (
            "#ifdef __CUDACC__", "#if defined(HAVE_NUMA)", "#elif LONGSPAN_WITH_UCX",
            "# ifndef __AVX2__", "#if __has_include(<x.h>)",
        ):  # fmt: skip
            code = condition + "\n#endif\n"
            self.assertEqual(len(self.findings({"src/tensor/a.cc": code})), 1, condition)
            self.assertEqual(len(self.findings({"apps/main.cc": code})), 1, condition)
            self.assertEqual(self.findings({"src/backend/cpu/a.cc": code}), [])
            self.assertEqual(self.findings({"src/comm/a.cc": code}), [])
            self.assertEqual(self.findings({"apps/wiring.cc": code}), [])
        assertions = "#ifdef LONGSPAN_ASSERTIONS\n#endif\n"
        self.assertEqual(self.findings({"src/base/a.cc": assertions}), [])

    def test_headers_need_pragma_once(self):
        self.assertEqual(len(self.findings({"src/base/a.h": "int a();\n"})), 1)

    def test_long_files_warn_and_then_fail(self):
        self.assertEqual(self.findings({"src/base/a.cc": "\n" * 400}), [])
        self.assertIn("warning", self.findings({"src/base/a.cc": "\n" * 401})[0])
        self.assertIn("warning", self.findings({"tests/a.py": "\n" * 600})[0])
        self.assertIn("more than 600", self.findings({"src/base/a.cc": "\n" * 601})[0])

    def test_a_room_links_only_what_it_may_include(self):
        def links(dependencies):
            declaration = f"longspan_library(model {dependencies})"
            return self.findings({"src/model/CMakeLists.txt": declaration})

        self.assertEqual(links("DEPS longspan_ops longspan_tensor fmt::fmt"), [])
        self.assertEqual(len(links("DEPS longspan_backend_cpu")), 1)
        self.assertEqual(len(links("DEPS longspan_base\n TEST_DEPS longspan_engine")), 1)
        self.assertEqual(len(links("DEPS longspan_misc")), 1)
        self.assertEqual(len(links("DEPS longspan_comm_socket")), 1)
        self.assertEqual(len(links("DEPS longspan_test_support")), 1)
        self.assertEqual(links("DEPS longspan_comm TEST_DEPS longspan_test_support"), [])
        self.assertEqual(links("DEPS longspan_comm TEST_DEPS longspan_comm_socket"), [])


if __name__ == "__main__":
    unittest.main()
