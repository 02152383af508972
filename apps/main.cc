// The program: one command per file, dispatched by commands.cc.
#include "apps/commands.h"

int main(int argc, char** argv) { return longspan::apps::RunCommandLine(argc, argv); }
