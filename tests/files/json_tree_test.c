/* The JSON reader: values, places, and each kind of wrong text refused. */
#include "files/json_tree.h"

#include "harness.h"

static stow_status read_text(json_tree *t, const char *text) {
  return json_tree_read(t, text, strlen(text), "x.json", 1 << 16);
}

TEST(members_and_items_are_found_with_their_places)
{
  json_tree t;
  const char *text = " {\"a\\u00e9\": [1, -2.5e1, \"x\\n\"], \"b\": {\"c\": null}, \"d\": true} ";
  CHECK_OK(read_text(&t, text));
  const json_node *list = json_member(&t, json_root(&t), "a\xc3\xa9");
  CHECK(list != NULL && list->kind == JSON_ARRAY && list->count == 3);
  double value = 0;
  CHECK(json_value(&t, json_next(&t, json_first(&t, list)), &value) && value == -25);
  CHECK_TEXT(json_string(&t, json_next(&t, json_next(&t, json_first(&t, list)))), "x\n");
  const json_node *inner = json_member(&t, json_root(&t), "b");
  CHECK(json_member(&t, inner, "c")->kind == JSON_NULL);
  CHECK(strncmp(text + inner->begin, "{\"c\": null}", inner->end - inner->begin) == 0);
  CHECK(json_member(&t, json_root(&t), "d")->kind == JSON_TRUE);
  CHECK(json_member(&t, json_root(&t), "e") == NULL && json_string(&t, inner) == NULL);
  json_tree_free(&t);
}

TEST(wrong_json_is_refused)
{
  static const char *const wrong[] = {"",
                                      "{",
                                      "{\"a\":1,}",
                                      "[1,]",
                                      "{\"a\" 1}",
                                      "01",
                                      "1.",
                                      "-",
                                      "tru",
                                      "{} {}",
                                      "\"\x01\"",
                                      "\"\\x\"",
                                      "\"\\ud800\"",
                                      "\"\xff\"",
                                      "[1 2]",
                                      "nul",
                                      "{\"a\":1,\"a\":2}",
                                      "\"\\u0000\"",
                                      "\"a",
                                      "{1:2}",
                                      "[}",
                                      "1e",
                                      "\"\\u12"};
  json_tree t;
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
    CHECK_STATUS(read_text(&t, wrong[i]), STOW_ERR_FORMAT);
}

TEST(depth_and_memory_are_bounded)
{
  char deep[300];
  json_tree t;
  memset(deep, '[', sizeof deep);
  CHECK_STATUS(json_tree_read(&t, deep, sizeof deep, "x.json", 1 << 16), STOW_ERR_FORMAT);
  char many[20001];
  for (size_t i = 0; i < sizeof many; i++) many[i] = i == 0 ? '[' : i % 2 == 1 ? '1' : ',';
  CHECK_STATUS(json_tree_read(&t, many, sizeof many, "x.json", 1 << 16), STOW_ERR_BUDGET);
}
TEST(members_of_another_kind_are_refused)
{
  json_tree t;
  bool flag = true;
  double number = 7;
  CHECK_STATUS(
      read_text(&t, "{\"yes\": true, \"one\": 1, \"text\": \"16\", \"none\": null, \"no\": false}"),
      STOW_OK);
  const json_node *root = json_root(&t);
  CHECK_STATUS(json_read_boolean(&t, root, "absent", &flag), STOW_OK);
  CHECK_STATUS(json_read_boolean(&t, root, "none", &flag), STOW_OK);
  CHECK(flag);
  CHECK_STATUS(json_read_boolean(&t, root, "no", &flag), STOW_OK);
  CHECK(!flag);
  CHECK_STATUS(json_read_boolean(&t, root, "yes", &flag), STOW_OK);
  CHECK(flag);
  CHECK_STATUS(json_read_boolean(&t, root, "one", &flag), STOW_ERR_FORMAT);
  CHECK_STATUS(json_read_number(&t, root, "none", &number), STOW_OK);
  CHECK(number == 7);
  CHECK_STATUS(json_read_number(&t, root, "one", &number), STOW_OK);
  CHECK(number == 1);
  CHECK_STATUS(json_read_number(&t, root, "text", &number), STOW_ERR_FORMAT);
  CHECK(strstr(stow_status_message(), "\"text\" is \"16\", a text") != NULL);
  json_tree_free(&t);
}
TEST_MAIN
