import { Button, ColorSwatch, Menu } from '@mantine/core';
import { IconCheck, IconSelector } from '@tabler/icons-react';
import { useSuspenseQuery } from '@tanstack/react-query';
import { useNavigate, useRouterState } from '@tanstack/react-router';
import { meQuery } from '../sign-in/queries.ts';
import { useEnvironment } from './environment.ts';

/** Which environment is shown. Choosing another stays on the same list, never on a thing of the former one. */
export function EnvironmentSwitch() {
  const environment = useEnvironment();
  const { data: me } = useSuspenseQuery(meQuery());
  const navigate = useNavigate();
  const area = useRouterState({ select: ({ location }) => location.pathname.split('/')[2] });
  const open = (name: string) =>
    void navigate({ to: `/${encodeURIComponent(name)}/${area ?? 'getting-started'}` as '/' });
  return (
    <Menu width={220} position="bottom-start">
      <Menu.Target>
        <Button
          variant="subtle"
          color="gray"
          px="xs"
          leftSection={<ColorSwatch size={10} color={colorOf(environment)} withShadow={false} />}
          rightSection={<IconSelector size={16} />}
          aria-label={`Environment: ${environment}`}
          maw={200}
        >
          {environment}
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Environment</Menu.Label>
        {me.environments.map(({ name, role }) => (
          <Menu.Item
            key={name}
            onClick={() => open(name)}
            leftSection={<ColorSwatch size={10} color={colorOf(name)} withShadow={false} />}
            rightSection={
              name === environment ? <IconCheck size={16} /> : role === 'viewer' ? 'viewer' : null
            }
          >
            {name}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}

/** Production stands out. */
function colorOf(name: string): string {
  return /^prod/i.test(name) ? 'var(--mantine-color-red-6)' : 'var(--mantine-color-teal-6)';
}
