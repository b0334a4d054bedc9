/* The viewer's files, embedded by the assembler: no generator, and the file in the tree is the file
 * in the library. The build sets STOW_WEB to the folder. */
#include "report/viewer.h"

#define WEB_FILE(name, path)                                                                       \
  __asm__(".pushsection .rodata\n"                                                                 \
          ".global stowage_web_" #name "\n"                                                        \
          ".hidden stowage_web_" #name "\n"                                                        \
          "stowage_web_" #name ":\n"                                                               \
          ".incbin \"" STOW_WEB "/" path "\"\n"                                                    \
          ".global stowage_web_" #name "_end\n"                                                    \
          ".hidden stowage_web_" #name "_end\n"                                                    \
          "stowage_web_" #name "_end:\n"                                                           \
          ".byte 0\n"                                                                              \
          ".popsection\n");                                                                        \
  extern const char stowage_web_##name[], stowage_web_##name##_end[];                              \
  static viewer_file web_##name(void) {                                                            \
    return (viewer_file){stowage_web_##name,                                                       \
                         (size_t)(stowage_web_##name##_end - stowage_web_##name)};                 \
  }

WEB_FILE(page, "report.html")
WEB_FILE(style, "report.css")
WEB_FILE(units, "units.js")
WEB_FILE(data, "data.js")
WEB_FILE(model, "model.js")
WEB_FILE(theme, "theme.js")
WEB_FILE(dom, "dom.js")
WEB_FILE(host, "host.js")
WEB_FILE(chart, "chart.js")
WEB_FILE(flame, "flame.js")
WEB_FILE(space, "space.js")
WEB_FILE(panels, "panels.js")
WEB_FILE(export, "export.js")
WEB_FILE(lines, "lines.js")
WEB_FILE(link, "link.js")
WEB_FILE(main, "main.js")

viewer_file viewer_page(void) {
  return web_page();
}

viewer_file viewer_style(void) {
  return web_style();
}

viewer_file viewer_module(size_t i) {
  static viewer_file (*const modules[])(void) = {
      web_units, web_data,  web_model,  web_theme,  web_dom,   web_host, web_chart,
      web_flame, web_space, web_panels, web_export, web_lines, web_link, web_main};
  return i < sizeof modules / sizeof *modules ? modules[i]() : (viewer_file){NULL, 0};
}
