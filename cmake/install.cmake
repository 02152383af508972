# cmake --install: the program, the embedded model beside it, and the licence.
include(GNUInstallDirs)

if(TARGET longspan)
  install(TARGETS longspan RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
# The program looks for models in ../share/longspan/models from its own folder.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models DESTINATION ${CMAKE_INSTALL_DATADIR}/longspan
        PATTERN "CMakeLists.txt" EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
