/* The parts of the page, as scripts/embed puts them into the program. Each ends with a zero byte.
 * Thread: any, read only.
 */
#ifndef RU_TOOL_PAGE_EMBED_H
#define RU_TOOL_PAGE_EMBED_H

extern const unsigned char rui_embed_page_html[], rui_embed_page_css[], rui_embed_page_js[];
extern const long rui_embed_page_html_bytes, rui_embed_page_css_bytes, rui_embed_page_js_bytes;

#endif
