import { NavLink, Stack } from '@mantine/core';
import { IconBook2, IconExternalLink } from '@tabler/icons-react';
import { Link, useMatchRoute } from '@tanstack/react-router';
import { useEnvironment } from './environment.ts';
import { pages } from './pages.ts';

export function Navigation() {
  const environment = useEnvironment();
  const matches = useMatchRoute();
  return (
    <Stack component="nav" gap={2} h="100%" aria-label="Pages">
      {pages.map(({ to, label, icon: Icon }) => {
        const isHere = matches({ to, params: { environment }, fuzzy: true }) !== false;
        return (
          <NavLink
            key={to}
            label={label}
            leftSection={<Icon size={18} stroke={1.7} />}
            active={isHere}
            aria-current={isHere ? 'page' : undefined}
            renderRoot={(props) => <Link to={to} params={{ environment }} {...props} />}
            fw={isHere ? 600 : 450}
            bdrs="md"
          />
        );
      })}
      <NavLink
        mt="auto"
        href="/docs/"
        target="_blank"
        label="API reference"
        leftSection={<IconBook2 size={18} stroke={1.7} />}
        rightSection={<IconExternalLink size={14} />}
        bdrs="md"
      />
    </Stack>
  );
}
