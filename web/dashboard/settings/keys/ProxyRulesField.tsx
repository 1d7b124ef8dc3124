import { ActionIcon, Button, Group, Select, Stack, TagsInput, Text, TextInput } from '@mantine/core';
import type { UseFormReturnType } from '@mantine/form';
import { IconPlus, IconX } from '@tabler/icons-react';
import type { ProxyRule } from './queries.ts';

type WithRules = { name: string; scopes: string[]; rules: ProxyRule[]; expires: string };

/** Which paths of the provider a key may call. A rule that denies wins; where one allows, what none allows is refused. */
export function ProxyRulesField({ form }: { form: UseFormReturnType<WithRules> }) {
  const { rules } = form.values;
  const change = (index: number, rule: ProxyRule) =>
    form.setFieldValue(
      'rules',
      rules.map((one, at) => (at === index ? rule : one)),
    );
  return (
    <Stack gap="xs">
      <Stack gap={2}>
        <Text size="sm" fw={500}>
          Rules of the proxy
        </Text>
        <Text size="xs" c="dimmed">
          Without one every call passes. Where a rule allows, what none allows is refused; one that denies
          wins. In a path <code>*</code> stands for a part of a segment, <code>/**</code> at the end for any
          number of them.
        </Text>
      </Stack>
      {rules.map((rule, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: rules have no other name, and their fields hold no state
        <Group key={index} gap="xs" align="flex-start">
          <Select
            aria-label={`Rule ${index + 1}: effect`}
            w={104}
            data={[
              { value: 'allow', label: 'Allow' },
              { value: 'deny', label: 'Deny' },
            ]}
            value={rule.effect}
            allowDeselect={false}
            onChange={(effect) => change(index, { ...rule, effect: effect === 'deny' ? 'deny' : 'allow' })}
          />
          <TagsInput
            aria-label={`Rule ${index + 1}: methods`}
            flex="1 1 150px"
            placeholder={rule.methods === undefined ? 'Every method' : ''}
            data={['GET', 'POST', 'PUT', 'PATCH', 'DELETE']}
            value={rule.methods ?? []}
            onChange={(given) => {
              const { methods: _, ...rest } = rule;
              const methods = given.map((method) => method.toUpperCase());
              change(index, methods.length === 0 ? rest : { ...rest, methods });
            }}
          />
          <TextInput
            aria-label={`Rule ${index + 1}: path`}
            flex="2 1 200px"
            placeholder="/v4/spreadsheets/**"
            value={rule.path}
            error={form.errors[`rules.${index}.path`]}
            onChange={({ currentTarget }) => change(index, { ...rule, path: currentTarget.value })}
          />
          <ActionIcon
            variant="subtle"
            color="gray"
            size="lg"
            aria-label={`Remove rule ${index + 1}`}
            onClick={() => form.removeListItem('rules', index)}
          >
            <IconX size={16} />
          </ActionIcon>
        </Group>
      ))}
      <Button
        variant="default"
        size="compact-sm"
        w="fit-content"
        leftSection={<IconPlus size={14} />}
        onClick={() => form.insertListItem('rules', { effect: 'allow', path: '' })}
      >
        Add a rule
      </Button>
    </Stack>
  );
}
