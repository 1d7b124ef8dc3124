import { Group, Select, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { CodeBlock } from '../../ui/CodeBlock.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { codeQuery, type FunctionAt, versionsQuery } from './queries.ts';

/** The source of a function, of the version that runs or of an earlier one. */
export function CodeTab({
  environment,
  at,
  current,
}: {
  environment: string;
  at: FunctionAt;
  current: number;
}) {
  const { version } = useSearch({ from: '/$environment/functions/of/$integration/$type/$name' });
  const navigate = useNavigate({ from: '/$environment/functions/of/$integration/$type/$name' });
  const query = useQuery(codeQuery(environment, { ...at, version }));
  const { data: versions = [] } = useQuery(versionsQuery(environment, at));
  const shown = version ?? current;
  return (
    <Stack gap="sm">
      {versions.length > 1 && (
        <Group gap="sm">
          <Select
            aria-label="Version"
            w={200}
            allowDeselect={false}
            data={versions.map((one) => ({
              value: String(one.version),
              label: `Version ${one.version}${one.current ? ', which runs' : ''}`,
            }))}
            value={String(shown)}
            onChange={(next) =>
              void navigate({
                search: { tab: 'code', version: Number(next) === current ? undefined : Number(next) },
                replace: true,
              })
            }
          />
          {shown !== current && (
            <Text size="sm" c="dimmed">
              Not the one that runs, which is {current}.
            </Text>
          )}
        </Group>
      )}
      <Loaded query={query} loading={<LoadingRows rows={1} height={420} />}>
        {(code) => <CodeBlock code={code} what="the code" />}
      </Loaded>
    </Stack>
  );
}
